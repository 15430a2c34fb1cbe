// How the output comes about: whole or not at all, the same however often it was interrupted, and refused where it does not belong.
#include <fcntl.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "convert_support.h"
#include "formats/safetensors.h"
#include "quant/format.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGolden = "tests/golden/glm_moe_dsa";
constexpr const char* kPocket = "models/pocket";

// Every file of a folder, whole.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = text_of(entry.path());
  }
  return files;
}

float scalar_of(const Checkpoint& checkpoint, const std::string& name) {
  const Tensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) throw std::runtime_error(name + " is missing");
  float value = 0;
  std::memcpy(&value, tensor->data, sizeof(value));
  return value;
}

TEST(Quantise, GateAndUpShareATensorScale) {
  const ScratchFolder scratch;
  quantise_folder(kGolden, scratch.path() / "out", {.format = QuantFormat::nvfp4, .modules = ModuleSet::all});
  const Checkpoint checkpoint = must(Checkpoint::open(scratch.path() / "out"));
  const Checkpoint source = must(Checkpoint::open(kGolden));
  int pairs = 0;
  bool some_differ = false;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    constexpr std::string_view kGate = "gate_proj.weight_scale_2";
    if (!tensor.name.ends_with(kGate)) continue;
    const std::string before = tensor.name.substr(0, tensor.name.size() - kGate.size());
    EXPECT_EQ(scalar_of(checkpoint, tensor.name), scalar_of(checkpoint, before + "up_proj.weight_scale_2")) << before;
    // It is derived from the largest magnitude of the two.
    float largest = 0;
    for (const char* projection : {"gate_proj", "up_proj"}) {
      const Tensor& weight = *source.find(before + projection + ".weight");
      for (std::int64_t i = 0; i < weight.shape.elements(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, weight.data + 2 * i, 2);
        largest = std::max(largest, std::fabs(bf16_to_f32(bits)));
      }
    }
    EXPECT_FLOAT_EQ(scalar_of(checkpoint, tensor.name), largest / 2688);
    some_differ |= scalar_of(checkpoint, before + "down_proj.weight_scale_2") != scalar_of(checkpoint, tensor.name);
    EXPECT_EQ(scalar_of(checkpoint, before + "gate_proj.input_scale"), 1.0f);
    ++pairs;
  }
  EXPECT_EQ(pairs, 1 + 3 * 9);  // a dense layer; three layers of eight experts and a shared one
  EXPECT_TRUE(some_differ);
}

TEST(Quantise, ProjectionsThatOthersFuseShareATensorScale) {
  const ScratchFolder scratch;
  const auto scale_of = [&](const std::string& folder, const std::string& projection) {
    const Checkpoint checkpoint = must(Checkpoint::open(scratch.path() / folder));
    return scalar_of(checkpoint, "model.layers.1.self_attn." + projection + ".weight_scale_2");
  };
  for (const char* folder : {"glm4_moe", "deepseek_v32"})
    quantise_folder(fs::path("tests/golden") / folder, scratch.path() / folder, {.format = QuantFormat::nvfp4, .modules = ModuleSet::all});
  EXPECT_EQ(scale_of("glm4_moe", "q_proj"), scale_of("glm4_moe", "k_proj"));
  EXPECT_EQ(scale_of("glm4_moe", "q_proj"), scale_of("glm4_moe", "v_proj"));
  EXPECT_NE(scale_of("glm4_moe", "q_proj"), scale_of("glm4_moe", "o_proj"));
  EXPECT_EQ(scale_of("deepseek_v32", "q_a_proj"), scale_of("deepseek_v32", "kv_a_proj_with_mqa"));
  EXPECT_NE(scale_of("deepseek_v32", "q_a_proj"), scale_of("deepseek_v32", "q_b_proj"));
}

// A copy of the golden model with the experts of each layer in two tensors.
void write_fused(const fs::path& out) {
  const Checkpoint source = must(Checkpoint::open(kGolden));
  std::vector<NamedTensor> tensors;
  std::deque<std::vector<std::byte>> memory;
  for (const CheckpointTensor& tensor : source.tensors()) {
    if (tensor.name.find(".experts.") == std::string::npos) tensors.push_back({tensor.name, tensor.tensor});
  }
  for (int layer = 1; layer < 4; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    std::vector<std::byte>& gate_up = memory.emplace_back();
    std::vector<std::byte>& down = memory.emplace_back();
    for (int expert = 0; expert < 8; ++expert) {
      const auto append = [&](std::vector<std::byte>& to, const char* projection) {
        const Tensor& tensor = *source.find(prefix + std::to_string(expert) + projection);
        to.insert(to.end(), tensor.data, tensor.data + tensor.bytes());
      };
      append(gate_up, ".gate_proj.weight");
      append(gate_up, ".up_proj.weight");
      append(down, ".down_proj.weight");
    }
    tensors.push_back({prefix + "gate_up_proj", {gate_up.data(), DType::bf16, {8, 64, 64}}});
    tensors.push_back({prefix + "down_proj", {down.data(), DType::bf16, {8, 64, 32}}});
  }
  fs::create_directories(out);
  must(write_safetensors(out / "model.safetensors", tensors));
  fs::copy_file(fs::path(kGolden) / "config.json", out / "config.json");
}

void expect_same_tensors(const fs::path& folder, const fs::path& expected) {
  const Checkpoint a = must(Checkpoint::open(folder));
  const Checkpoint b = must(Checkpoint::open(expected));
  EXPECT_EQ(a.tensors().size(), b.tensors().size());
  for (const CheckpointTensor& tensor : b.tensors()) {
    const Tensor* other = a.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(other->shape, tensor.tensor.shape) << tensor.name;
    ASSERT_EQ(other->dtype, tensor.tensor.dtype) << tensor.name;
    ASSERT_EQ(std::memcmp(other->data, tensor.tensor.data, static_cast<std::size_t>(other->bytes())), 0) << tensor.name;
  }
}

TEST(Quantise, FusedExpertsBecomeOneTensorAnExpert) {
  const ScratchFolder scratch;
  write_fused(scratch.path() / "fused");
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::fp8_block, QuantFormat::int4_g32}) {
    const std::string name(quantise_name(format));
    quantise_folder(kGolden, scratch.path() / name, {.format = format});
    quantise_folder(scratch.path() / "fused", scratch.path() / (name + "-fused"), {.format = format, .shard_bytes = 100'000});
    expect_same_tensors(scratch.path() / (name + "-fused"), scratch.path() / name);
  }
}

// Threads and the size of files change nothing in the tensors.
TEST(Quantise, IsTheSameForAnyNumberOfThreadsAndFiles) {
  const ScratchFolder scratch;
  quantise_folder(kPocket, scratch.path() / "a", {.format = QuantFormat::nvfp4, .modules = ModuleSet::mlp}, {}, 1);
  quantise_folder(kPocket, scratch.path() / "b", {.format = QuantFormat::nvfp4, .modules = ModuleSet::mlp, .shard_bytes = 1'000'000}, {},
                  4);
  const Checkpoint b = must(Checkpoint::open(scratch.path() / "b"));
  EXPECT_GT(b.files().size(), 10u);
  expect_same_tensors(scratch.path() / "b", scratch.path() / "a");
  EXPECT_EQ(b.notes(), std::vector<std::string>()) << "the index agrees with the files";
}

// Sees to it that nothing can be loaded too early: looks at the folder at every step.
struct Watch {
  fs::path out;
  std::int64_t stop_after = 0;  // steps; 0: never
  std::int64_t steps = 0;
  std::set<std::string> early = {};
  QuantiseEvents events() {
    return {.interrupted = [this] {
      for (const char* name : {"config.json", "model.safetensors.index.json", "hf_quant_config.json"}) {
        if (fs::exists(out / name)) early.insert(name);
      }
      // A shard that has its name must be whole.
      for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
        if (entry.path().extension() != ".safetensors") continue;
        if (!SafetensorsFile::open(entry.path()).ok()) early.insert(entry.path().filename().string());
      }
      return ++steps == stop_after;
    }};
  }
};

TEST(Quantise, GoesOnAfterInterruptionsWithTheSameBytes) {
  const ScratchFolder scratch;
  const QuantiseOptions options{.format = QuantFormat::nvfp4, .modules = ModuleSet::all, .shard_bytes = 40'000};
  quantise_folder(kGolden, scratch.path() / "whole", options);
  const fs::path out = scratch.path() / "out";
  std::int64_t kept = -1;
  int runs = 0;
  for (bool interrupted = true; interrupted; ++runs) {
    ASSERT_LT(runs, 100);
    Watch watch{.out = out, .stop_after = 110};
    const QuantiseReport report = quantise_folder(kGolden, out, options, watch.events(), 1);
    EXPECT_EQ(watch.early, std::set<std::string>());
    EXPECT_GT(report.shards_kept, kept) << "each run gets further";
    kept = report.shards_kept;
    interrupted = report.interrupted;
    if (interrupted) { EXPECT_FALSE(open_model(out).ok()); }
    // As if the process had been killed while writing.
    if (interrupted) std::ofstream(out / "model-00003-of-00099.safetensors.part") << "half";
  }
  EXPECT_GT(runs, 2);
  EXPECT_EQ(contents(out), contents(scratch.path() / "whole"));
  // Once more: nothing is left to do, and nothing changes.
  const QuantiseReport again = quantise_folder(kGolden, out, options);
  EXPECT_EQ(again.source_bytes, 0);
  EXPECT_EQ(contents(out), contents(scratch.path() / "whole"));
}

TEST(Quantise, AShardOfAnotherLengthIsWrittenAgain) {
  const ScratchFolder scratch;
  const QuantiseOptions options{.format = QuantFormat::fp8_block, .shard_bytes = 150'000};
  const fs::path out = scratch.path() / "out";
  quantise_folder(kGolden, out, options);
  const auto before = contents(out);
  std::string shard;
  for (const auto& [name, text] : before) {
    if (name.starts_with("model-00002")) shard = name;
  }
  fs::resize_file(out / shard, 1000);
  const QuantiseReport report = quantise_folder(kGolden, out, options);
  EXPECT_GT(report.source_bytes, 0);
  EXPECT_GT(report.shards_kept, 0);
  EXPECT_EQ(contents(out), before);
}

std::string error_of(const fs::path& from, const fs::path& to, const QuantiseOptions& options = {}) {
  const std::unique_ptr<Model> model = must(open_model(from));
  const Result<QuantisePlan> plan = plan_quantisation(*model, options);
  if (!plan) return plan.error().message();
  const Status prepared = prepare_output(*model, *plan, to);
  return prepared ? "" : prepared.error().message();
}

TEST(Quantise, RefusesFoldersThatAreNotForIt) {
  const ScratchFolder scratch;
  const fs::path& base = scratch.path();
  const auto refused = [&](const fs::path& out, const QuantiseOptions& options = {}) {
    return scratch.shorten(error_of(base / "model", out, options));
  };
  fs::copy(kGolden, base / "model");
  const auto before = contents(base);
  EXPECT_EQ(refused(base / "model"), "DIR/model: the output cannot go into the model's own folder\n  what to do: give another folder");
  EXPECT_EQ(refused(base / "model/new/out"),
            "DIR/model/new/out: the output cannot go inside the model's own folder\n  what to do: give another folder");
  EXPECT_EQ(contents(base), before);
  EXPECT_FALSE(fs::exists(base / "model/new"));

  scratch.write("other/notes.txt", "mine");
  EXPECT_EQ(refused(base / "other"),
            "DIR/other: is not empty (it holds notes.txt) and was not written by this command\n  what to do: give a new or empty folder");
  EXPECT_EQ(refused(base / "other/notes.txt"),
            "DIR/other/notes.txt: expected a folder for the output, found a file\n  what to do: give another folder");

  quantise_folder(base / "model", base / "out", {.format = QuantFormat::nvfp4});
  EXPECT_EQ(refused(base / "out", {.format = QuantFormat::nvfp4}), "");
  for (const QuantiseOptions& other :
       {QuantiseOptions{.format = QuantFormat::mxfp4}, QuantiseOptions{.modules = ModuleSet::mlp}, QuantiseOptions{.shard_bytes = 1000}}) {
    EXPECT_EQ(refused(base / "out", other),
              "DIR/out: holds the output of another command (reckoner-quantize.json differs: its source, format, modules, shard size or "
              "the version)\n"
              "  what to do: repeat that command to finish it, give another folder, or empty this one");
  }
  // The source has changed since.
  fs::last_write_time(base / "model/model.safetensors", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_NE(refused(base / "out", {.format = QuantFormat::nvfp4}).find("holds the output of another command"), std::string::npos);
}

TEST(Quantise, ValuesThatAreNotFiniteAreNamed) {
  const ScratchFolder scratch;
  fs::copy(kGolden, scratch.path() / "model");
  const std::string module = "model.layers.2.mlp.experts.3.up_proj";
  std::int64_t offset = 0;
  {
    const Checkpoint checkpoint = must(Checkpoint::open(scratch.path() / "model"));
    offset = checkpoint.find_entry(module + ".weight")->file_offset + 2 * (5 * 64 + 7);
  }
  std::fstream file(scratch.path() / "model/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file.write("\xc0\x7f", 2);  // a NaN
  file.close();
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::fp8_block}) {
    const std::unique_ptr<Model> model = must(open_model(scratch.path() / "model"));
    const QuantisePlan plan = must(plan_quantisation(*model, {.format = format}));
    const fs::path out = scratch.path() / std::string(quantise_name(format));
    must(prepare_output(*model, plan, out));
    ThreadPool pool(2);
    const auto result = quantise(*model, plan, out, pool, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().what, "model.safetensors: tensor '" + module + ".weight': expected finite values, found nan in row 5");
    EXPECT_FALSE(fs::exists(out / "model.safetensors"));
    EXPECT_FALSE(fs::exists(out / "model.safetensors.part"));
    EXPECT_FALSE(fs::exists(out / "config.json"));
  }
}

TEST(Quantise, OtherFilesAreCopiedAndWeightsInOtherFormsAreNot) {
  const ScratchFolder scratch;
  const fs::path model = scratch.path() / "model";
  fs::copy(kPocket, model);
  scratch.write("model/LICENSE", "terms");
  scratch.write("model/empty.txt", "");
  scratch.write("model/encoding/code.py", "print()");
  scratch.write("model/.cache/blob", "x");
  scratch.write("model/pytorch_model.bin", "x");
  scratch.write("model/model.gguf", "x");
  fs::create_symlink("LICENSE", model / "LICENSE.md");
  quantise_folder(model, scratch.path() / "out", {.format = QuantFormat::fp8_block});
  const auto before = contents(model);
  auto after = contents(scratch.path() / "out");
  for (const char* name : {"LICENSE", "LICENSE.md", "empty.txt", "encoding/code.py", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "generation_config.json"}) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after[name], before.at(name)) << name;
  }
  // hf_quant_config.json of the source speaks of formats that the output does not have.
  for (const char* name : {".cache/blob", "pytorch_model.bin", "model.gguf", "hf_quant_config.json"})
    EXPECT_FALSE(after.contains(name)) << name;
  for (const auto& [name, text] : after) EXPECT_FALSE(name.ends_with(".part")) << name;
}

// The pocket model has NVFP4 experts and an MTP layer.
TEST(Quantise, WhatIsQuantisedAndNotAskedForBecomesBFloat16AndMtpStays) {
  const ScratchFolder scratch;
  // All of it in FP8 first; then only the experts in INT4.
  quantise_folder(kPocket, scratch.path() / "fp8", {.format = QuantFormat::fp8_block, .modules = ModuleSet::all});
  const std::unique_ptr<Model> fp8 = must(open_model(scratch.path() / "fp8"));
  const QuantisePlan plan = must(plan_quantisation(*fp8, {.format = QuantFormat::int4_g32}));
  bool warned = false;
  bool expanded = false;
  for (const std::string& note : plan.notes) {
    warned |= note.find("quantising twice") != std::string::npos;
    expanded |= note.find("expanded to BF16") != std::string::npos;
  }
  EXPECT_TRUE(warned);
  EXPECT_TRUE(expanded);
  quantise_folder(scratch.path() / "fp8", scratch.path() / "int4", {.format = QuantFormat::int4_g32});
  const std::unique_ptr<Model> int4 = must(open_model(scratch.path() / "int4"));
  for_each_matrix(*int4, [&](const WeightRule& rule, const Weight& w) {
    EXPECT_EQ(w.format, rule.role == WeightRole::expert ? QuantFormat::int4_g32 : QuantFormat::bf16) << w.name;
  });
  const Checkpoint original = must(Checkpoint::open(kPocket));
  int mtp = 0;
  for (const CheckpointTensor& tensor : original.tensors()) {
    if (!tensor.name.starts_with("model.layers.4.")) continue;
    const Tensor* copy = int4->checkpoint->find(tensor.name);
    ASSERT_NE(copy, nullptr) << tensor.name;
    ASSERT_EQ(copy->dtype, tensor.tensor.dtype);
    ASSERT_EQ(std::memcmp(copy->data, tensor.tensor.data, static_cast<std::size_t>(copy->bytes())), 0) << tensor.name;
    ++mtp;
  }
  EXPECT_GT(mtp, 50);
  EXPECT_TRUE(ExcludeList(scratch.path() / "int4").contains("model.layers.4.mlp.experts.3.up_proj"));
  // Nothing of the old format is left behind.
  for (const CheckpointTensor& tensor : int4->checkpoint->tensors()) EXPECT_FALSE(tensor.name.ends_with("_inv")) << tensor.name;
}

}  // namespace
}  // namespace reckoner
