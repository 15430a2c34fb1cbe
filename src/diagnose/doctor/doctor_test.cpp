#include "diagnose/doctor/doctor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "diagnose/doctor/counting_memory.h"
#include "model/share_of.h"
#include "model/upload.h"

namespace reckoner::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGolden = "tests/golden/glm_moe_dsa";

std::unique_ptr<Model> opened(const char* folder) {
  Result<std::unique_ptr<Model>> model = open_model(folder);
  EXPECT_TRUE(model.ok()) << model.error().message();
  return std::move(model).value();
}

TEST(HardwareNames, AreReadAsPeopleWriteThem) {
  struct Case {
    std::string text;
    int count;
    std::string profile;
  };
  const Case cases[] = {
      {"8x RTX PRO 6000", 8, "rtx-pro-6000"},
      {"h200", 1, "h200"},
      {"2x rtx-5090", 2, "rtx-5090"},
      {"NVIDIA H200", 1, "h200"},
      {"8 x H100", 8, "h100"},
      {"4X nvidia geforce rtx 4090", 4, "rtx-4090"},
      {" 1x gb10", 1, "gb10"},
      {"RTX_PRO_6000 Blackwell", 1, "rtx-pro-6000"},
  };
  for (const Case& one : cases) {
    const Result<NamedHardware> named = parse_hardware(one.text);
    ASSERT_TRUE(named.ok()) << one.text << ": " << named.error().message();
    EXPECT_EQ(named->count, one.count) << one.text;
    EXPECT_EQ(named->profile->name, one.profile) << one.text;
  }
  EXPECT_EQ(parse_hardware("CPU")->count, 0);
  for (const char* bad : {"", "8x", "0x h200", "65x h200", "rtx", "8 h200", "2x cpu", "-1x h200"}) {
    const Result<NamedHardware> named = parse_hardware(bad);
    ASSERT_FALSE(named.ok()) << bad;
    EXPECT_NE(named.error().remedy.find("rtx-pro-6000, rtx-5090"), std::string::npos) << "names what there is";
  }
}

TEST(HardwareNames, ADeviceIsFoundByWhatItCallsItself) {
  EXPECT_EQ(profile_of("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(profile_of("NVIDIA RTX PRO 6000 Blackwell Server Edition")->name, "rtx-pro-6000");
  EXPECT_EQ(profile_of("NVIDIA GeForce RTX 5090")->name, "rtx-5090");
  EXPECT_EQ(profile_of("NVIDIA RTX 6000 Ada Generation"), nullptr);
  EXPECT_EQ(profile_of("NVIDIA GeForce RTX 5090 D v2 Something")->name, "rtx-5090");
  for (const HardwareProfile& profile : hardware_profiles()) {
    EXPECT_EQ(profile_of(profile.full_name), &profile) << profile.full_name;
    EXPECT_TRUE(peaks_of(profile).has_value()) << profile.name;
  }
}

PlannedDevice described_gpu(std::int64_t memory_bytes) {
  const HardwareProfile* const profile = find_profile("rtx-5090");
  return {.info = {.name = "described", .cuda = profile->cuda},
          .catalogue = with_references({}),
          .memory_bytes = memory_bytes,
          .program_bytes = 1'000'000};
}

// What a real device would be asked for by the same code: nothing is worked out twice.
TEST(Planner, CountsWhatARunnerAllocates) {
  const std::unique_ptr<Model> model = opened(kGolden);
  ThreadPool pool(1);
  const FitOptions options{.context = 256, .streams = 2, .chunk = 70};
  Planner planner(*model, described_gpu(0), options, pool);
  const Fit fit = planner.fit();
  ASSERT_TRUE(planner.status().ok());

  CountingMemory memory(described_gpu(0).info);
  const StepLimits limits{.max_tokens = 70, .max_samples = 128, .max_context = 256};
  const StepRunner runner(*model, model->weights, {.info = memory.info(), .catalogue = with_references({}), .memory = &memory}, pool,
                          Precision::fast, limits);
  const KvLayout layout = runner.cache_layout();
  std::int64_t graphs = 0;
  for (const Term& term : fit.terms) {
    if (term.name == "CUDA graphs") graphs = term.bytes;
  }
  EXPECT_GT(graphs, 0);
  EXPECT_EQ(fit.cache_tokens, 512);
  EXPECT_EQ(fit.total(), upload_bytes(*model) + 8 * layout.page_bytes + memory.device_bytes() + graphs + 1'000'000);
}

// The edge: exactly what is needed fits, a byte less does not, and what would is named.
TEST(Planner, FitsToTheByteAndSaysWhatWould) {
  const std::unique_ptr<Model> model = opened(kGolden);
  ThreadPool pool(1);
  const FitOptions options{.context = 192, .streams = 3, .chunk = 65};
  const std::int64_t needed = Planner(*model, described_gpu(0), options, pool).fit().total();
  const Fit enough = Planner(*model, described_gpu(needed), options, pool).fit();
  EXPECT_TRUE(enough.fits);
  EXPECT_TRUE(enough.advice.empty());
  const Fit less = Planner(*model, described_gpu(needed - 1), options, pool).fit();
  EXPECT_FALSE(less.fits);
  ASSERT_FALSE(less.advice.empty());
  for (const std::string& advice : less.advice) {
    // Each is tried: the cache in FP8, and fewer streams.
    FitOptions changed = options;
    if (advice.starts_with("--kv-cache-dtype fp8")) changed.cache_type = KvCacheType::fp8;
    if (advice.starts_with("--streams ")) changed.streams = std::stoll(advice.substr(10));
    if (advice.starts_with("--context ")) changed.context = std::stoll(advice.substr(10));
    if (advice.starts_with("--tp ")) changed.ranks = std::stoi(advice.substr(5));
    EXPECT_TRUE(Planner(*model, described_gpu(needed - 1), changed, pool).fit().fits) << advice;
  }
}

TEST(Planner, TheLongestContextFitsAndAPageMoreDoesNot) {
  const std::unique_ptr<Model> model = opened(kGolden);
  ThreadPool pool(1);
  const std::int64_t longest = model->config.max_position_embeddings;
  FitOptions options{.context = longest, .streams = 4, .chunk = 65};
  const std::int64_t all = Planner(*model, described_gpu(0), options, pool).fit().total();
  options.context = 64;
  const std::int64_t least = Planner(*model, described_gpu(0), options, pool).fit().total();
  options.context = 0;
  EXPECT_EQ(Planner(*model, described_gpu(all), options, pool).fit().context, longest);
  EXPECT_EQ(Planner(*model, described_gpu(least - 1), options, pool).fit().longest_context, 0);
  if (longest <= 128) return;
  const std::int64_t between = (all + least) / 2;
  const Fit middle = Planner(*model, described_gpu(between), options, pool).fit();
  ASSERT_GT(middle.context, 64);
  ASSERT_LT(middle.context, longest);
  EXPECT_TRUE(middle.fits) << middle.total() << " of " << between;
  // Not wastefully short: an eighth more would be too long.
  options.context = middle.context * 9 / 8 + 64;
  if (options.context >= longest) return;
  EXPECT_FALSE(Planner(*model, described_gpu(between), options, pool).fit().fits);
}

TEST(Speed, IsTheLongerOfMovingAndMultiplyingAndTheRest) {
  SpeedBasis basis{.memory_gbs = 1000, .tflops = 100, .memory_share = 0.5, .compute_share = 0.25, .launch_us = 2};
  const std::vector<Ops::Call> calls = {
      {.op = "linear", .kernel = "k", .cost = {.bytes = 1e9, .multiply_adds = 1e9}},   // 2 ms to move, 80 us to multiply
      {.op = "linear", .kernel = "k", .cost = {.bytes = 1e6, .multiply_adds = 1e12}},  // 80 ms to multiply
  };
  const StepTime time = step_time(calls, 8, basis);
  EXPECT_DOUBLE_EQ(time.memory_seconds, 2e-3);
  EXPECT_DOUBLE_EQ(time.compute_seconds, 80e-3);
  EXPECT_DOUBLE_EQ(time.launch_seconds, 4e-6);
  EXPECT_EQ(time.ranks_seconds, 0);
  EXPECT_DOUBLE_EQ(time.seconds, 82.004e-3);
  basis.ranks = 2;
  basis.link = Link::nvlink;
  basis.link_gbs = 100;
  basis.hidden = 1000;
  basis.layers = 10;
  // 20 times: 10 us, and 8 rows of 4000 bytes once over (2 * 1 / 2) at 50 GB/s.
  EXPECT_NEAR(step_time(calls, 8, basis).ranks_seconds, 20 * (10e-6 + 32000 / 50e9), 1e-12);
  EXPECT_EQ(step_time({}, 1, basis).seconds, 0);
}

class FakeRoot {
 public:
  FakeRoot() : path_(fs::temp_directory_path() / fmt::format("doctor_root_{}", ::getpid())) { fs::create_directories(path_); }
  ~FakeRoot() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  // A device on the bus, as sysfs shows it: a link from bus/pci/devices into the tree.
  void put_device(const std::string& bridge, const std::string& address, const std::string& kind, const std::string& vendor) const {
    const std::string real = "sys/devices/pci" + bridge + "/" + address;
    put(real + "/class", kind + "\n");
    put(real + "/vendor", vendor + "\n");
    put(real + "/numa_node", "1\n");
    put(real + "/max_link_speed", "32.0 GT/s PCIe\n");
    put(real + "/max_link_width", "16\n");
    fs::create_directories(path_ / "sys/bus/pci/devices");
    fs::create_directory_symlink(path_ / real, path_ / "sys/bus/pci/devices" / address);
  }

 private:
  fs::path path_;
};

// 256 bytes of ordinary configuration, then an AER capability and ACS with this control word.
std::string config_with_acs(char control) {
  std::string config(4096, '\0');
  config.replace(256, 4, std::string("\x01\x00\x02\x15", 4));  // id 1, next at 0x150
  config.replace(0x150, 4, std::string("\x0d\x00\x01\x00", 4));
  config[0x156] = control;
  return config;
}

TEST(Host, IsReadFromItsFiles) {
  const FakeRoot root;
  root.put("proc/meminfo", "MemTotal:       1000000 kB\nMemFree: 1 kB\nMemAvailable:    500000 kB\nSwapTotal:   0 kB\n");
  root.put("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt quiet\n");
  root.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\nGCC version: x\n");
  root.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.put("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.put("sys/devices/system/node/node1/cpulist", "4-7\n");
  root.put("sys/fs/cgroup/memory.max", "700000000\n");
  root.put("sys/fs/cgroup/cpu.max", "250000 100000\n");
  root.put("sys/kernel/iommu_groups/0/type", "DMA\n");
  root.put_device("0000:40", "0000:41:00.0", "0x030200", "0x10de");
  root.put("proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n");
  root.put_device("0000:40", "0000:42:00.0", "0x030000", "0x1a03");  // another maker's
  root.put_device("0000:c0", "0000:c1:00.0", "0x030200", "0x10de");
  const HostFacts host = read_host(root.path());
  EXPECT_EQ(host.memory_bytes, 1'024'000'000);
  EXPECT_EQ(host.available_bytes, 512'000'000);
  EXPECT_EQ(host.numa_nodes, 2);
  EXPECT_EQ(host.huge_pages, "madvise");
  EXPECT_EQ(host.driver, "580.95.05");
  EXPECT_EQ(host.cgroup_memory_bytes, 700'000'000);
  EXPECT_EQ(host.cgroup_cores, 2.5);
  EXPECT_EQ(host.iommu, Known::yes);
  EXPECT_TRUE(host.iommu_passthrough);
  EXPECT_EQ(host.acs, Known::unknown) << "no bridge could be read";
  ASSERT_EQ(host.gpus.size(), 2u);
  EXPECT_EQ(host.gpus[1].address, "0000:c1:00.0");
  EXPECT_EQ(host.gpus[1].root, "0000:c0");
  EXPECT_EQ(host.gpus[0].model, "NVIDIA H200");
  EXPECT_EQ(host.gpus[1].model, "");
  EXPECT_EQ(host.gpus[0].numa_node, 1);
  EXPECT_EQ(host.gpus[0].speed, "32.0 GT/s PCIe");
  EXPECT_EQ(host.gpus[0].width, 16);
}

TEST(Host, AcsIsReadFromTheBridges) {
  for (const char control : {'\x00', '\x01', '\x0c', '\x5d'}) {
    const FakeRoot root;
    root.put_device("0000:40", "0000:40:01.1", "0x060400", "0x1022");
    root.put("sys/devices/pci0000:40/0000:40:01.1/config", config_with_acs(control));
    EXPECT_EQ(read_host(root.path()).acs, (control & 0x0c) != 0 ? Known::yes : Known::no) << static_cast<int>(control);
  }
  const FakeRoot root;
  root.put_device("0000:40", "0000:40:01.1", "0x060400", "0x1022");
  root.put("sys/devices/pci0000:40/0000:40:01.1/config", std::string(64, '\x01'));
  EXPECT_EQ(read_host(root.path()).acs, Known::unknown) << "others than root see 64 bytes";
}

TEST(Host, AnEmptyRootIsNoError) {
  const FakeRoot root;
  const HostFacts host = read_host(root.path());
  EXPECT_EQ(host.memory_bytes, 0);
  EXPECT_EQ(host.iommu, Known::unknown);
  EXPECT_TRUE(host.gpus.empty());
}

TEST(Disk, SaysWhyItWasNotMeasured) {
  const FakeRoot root;
  EXPECT_EQ(measure_disk(root.path()).how, "there is no file to read");
  EXPECT_GT(measure_disk(root.path()).free_bytes, 0);
  root.put("small", "x");
  EXPECT_EQ(measure_disk(root.path()).how, "the files are too small to tell");
  fs::resize_file(root.path() / "small", 1'000'000'000);
  EXPECT_EQ(measure_disk(root.path()).how, "the largest file has holes");
  EXPECT_FALSE(measure_disk(root.path()).read_gbs.has_value());
}

Hardware described(int gpus, std::int64_t memory_bytes) {
  Hardware hardware{.is_described = true, .name = "described", .gpus = gpus, .memory_bytes = memory_bytes};
  hardware.profile = find_profile("rtx-pro-6000");
  hardware.device = {.name = "described", .cuda = hardware.profile->cuda};
  hardware.peaks = peaks_of(*hardware.profile);
  hardware.catalogue = with_references({});
  return hardware;
}

Result<Report> examined(Hardware hardware, const char* folder, const FitOptions& fit = {.context = 128, .chunk = 65}) {
  ThreadPool pool(1);
  return examine(std::move(hardware), {.model = folder, .folder = folder, .fit = fit}, pool);
}

TEST(Doctor, ASmallModelFitsALargeMachine) {
  const Result<Report> report = examined(described(8, 96'000'000'000), kGolden);
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_NE(report->verdict, Verdict::impossible) << fmt::format("{}", report->problems.empty() ? "" : report->problems.front());
  ASSERT_TRUE(report->fit.has_value());
  EXPECT_TRUE(report->fit->fits);
  EXPECT_TRUE(check_split(*opened(kGolden), report->ranks).ok());
  EXPECT_GT(report->ranks, 1);
  ASSERT_FALSE(report->decode.empty());
  EXPECT_GT(report->decode.front().tokens_per_second, 0);
  // References only: that is a doubt, named.
  EXPECT_EQ(report->verdict, Verdict::doubtful);
  bool names_sparse_failure = false;
  for (const findings::FactMatch& match : report->elsewhere)
    names_sparse_failure = names_sparse_failure || match.finding->id == "deepgemm-unsupported-architecture";
  EXPECT_TRUE(names_sparse_failure);
}

TEST(Doctor, TooLittleMemoryIsAProblemWithAWayOut) {
  const Result<Report> report = examined(described(1, 700'000'000), kGolden, {.context = 128, .streams = 900, .chunk = 65});
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->verdict, Verdict::impossible) << report->fit->total();
  EXPECT_TRUE(report->problems.front().starts_with("memory: ")) << report->problems.front();
  EXPECT_FALSE(report->fit->advice.empty());
}

TEST(Doctor, AContextThatTheModelWasNotMadeForIsAProblem) {
  const Result<Report> report = examined(described(1, 96'000'000'000), kGolden, {.context = 1025, .chunk = 65});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->verdict, Verdict::impossible);
  EXPECT_TRUE(report->problems.front().starts_with("--context 1025: the model was made for at most 1024 tokens"))
      << report->problems.front();
}

TEST(Doctor, AcceptedErrorsOfLintAreDoubts) {
  const FakeRoot root;
  for (const auto& entry : fs::directory_iterator(kGolden)) fs::copy_file(entry.path(), root.path() / entry.path().filename());
  ThreadPool pool(1);
  const auto look = [&](std::vector<std::string> accept) {
    Options options{.model = "copy", .folder = root.path(), .fit = {.context = 128, .chunk = 65}};
    options.accept = std::move(accept);
    return examine(described(1, 96'000'000'000), options, pool);
  };
  const Result<Report> before = look({});
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(before->problems.empty()) << before->problems.front();
  // A file whose content never came: its header, and a hole.
  const fs::path file = root.path() / "model.safetensors";
  const std::uintmax_t size = fs::file_size(file);
  std::ifstream original(file, std::ios::binary);
  std::uint64_t header = 0;
  original.read(reinterpret_cast<char*>(&header), 8);
  std::string start(static_cast<std::size_t>(8 + header), '\0');
  original.seekg(0);
  original.read(start.data(), static_cast<std::streamsize>(start.size()));
  fs::remove(file);
  root.put("model.safetensors", start);
  fs::resize_file(file, size);
  const Result<Report> refused = look({});
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->verdict, Verdict::impossible);
  ASSERT_EQ(refused->problems.size(), 1u);
  EXPECT_TRUE(refused->problems.front().starts_with("checkpoint: file-not-filled: ")) << refused->problems.front();
  const Result<Report> accepted = look({"file-not-filled"});
  ASSERT_TRUE(accepted.ok());
  EXPECT_EQ(accepted->verdict, Verdict::doubtful);
  EXPECT_TRUE(accepted->doubts.front().starts_with("checkpoint: file-not-filled: ")) << accepted->doubts.front();
}

TEST(Doctor, AModelThatCannotBeOpenedIsPartOfTheReport) {
  const FakeRoot root;
  root.put("config.json", "{\"model_type\": \"unheard_of\"}");
  const Result<Report> report = examined(described(1, 96'000'000'000), root.path().c_str());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->verdict, Verdict::impossible);
  EXPECT_FALSE(report->problems.empty());
  EXPECT_FALSE(report->fit.has_value());
}

}  // namespace
}  // namespace reckoner::doctor
