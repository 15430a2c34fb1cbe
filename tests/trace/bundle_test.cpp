// Bundles: what was written is read, and what somebody damaged is refused.
#include <fstream>

#include "diagnose/admission/random.h"
#include "faulty.h"
#include "trace_support.h"

namespace reckoner::trace {
namespace {

class BundleTest : public testing::Test {
 protected:
  // A bundle of the op's first call in layer 1 or so, spoilt.
  std::string bundle_of(const std::string& op, const std::string& model, std::int64_t limit_bytes = 1 << 28) {
    TraceStand stand(model);
    const Catalogue faulty = with_faulty(cpu_catalogue(), op, Spoil::off);
    FaultyCalls::set(0, 1 << 20);
    TraceWishes wishes{.prompt = some_prompt(*stand.model, 20), .decode_steps = 0, .check_ops = Wish::yes};
    wishes.bundle.path = folder.path / (op + ".safetensors");
    wishes.bundle.about = {{"model", "tiny"}};
    wishes.bundle.limits.bytes = limit_bytes;
    const TraceReport report = stand.run(faulty, wishes);
    EXPECT_TRUE(report.wrong.has_value());
    error = report.wrong->bundle_error;
    return report.wrong->bundle;
  }
  // The bundle written again after `change` of its tensors and its description.
  template <class Change>
  Status after(const std::string& path, const Change& change) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    std::vector<std::vector<std::byte>> bytes;
    std::vector<NamedTensor> tensors;
    for (const TensorEntry& entry : file->tensors()) {
      bytes.emplace_back(entry.tensor.data, entry.tensor.data + entry.tensor.bytes());
      Tensor tensor = entry.tensor;
      tensor.data = bytes.back().data();
      tensors.push_back({entry.name, tensor});
    }
    SafetensorsMetadata metadata = file->metadata();
    change(tensors, metadata["reckoner.bundle"]);
    const fs::path damaged = folder.path / "damaged.safetensors";
    const Status written = write_safetensors(damaged, tensors, metadata);
    EXPECT_TRUE(written.ok());
    const Result<Bundle> bundle = read_bundle(damaged);
    return bundle.ok() ? Status() : Status(bundle.error());
  }
  static Tensor& tensor_named(std::vector<NamedTensor>& tensors, const std::string& name) {
    for (NamedTensor& tensor : tensors) {
      if (tensor.name == name) return tensor.tensor;
    }
    throw std::runtime_error("no tensor " + name);
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error("no '" + from + "' in " + text);
    text.replace(at, from.size(), to);
  }
  void expect_refused(const Status& status, const std::string& part) {
    ASSERT_FALSE(status.ok()) << "wanted: " << part;
    EXPECT_NE(status.error().what.find(part), std::string::npos) << status.error().what;
  }
  TraceFolder folder;
  std::string error;
};

TEST_F(BundleTest, HoldsOnlyExpertsWithRowsAndSaysWhich) {
  const std::string path = bundle_of("linear_experts", "tests/golden/glm_moe_dsa");
  const Result<Bundle> bundle = read_bundle(path);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message();
  const auto& call = std::get<Captured<LinearExpertsArgs>>(bundle->before);
  const Tensor& begin = call.args.slots.begin;
  EXPECT_EQ(begin.dim(0), std::ssize(call.args.experts) + 1);
  for (std::int64_t i = 0; i + 1 < begin.dim(0); ++i) EXPECT_LT(begin.i32()[i], begin.i32()[i + 1]) << "no expert without rows";
  EXPECT_EQ(bundle->about.at("model"), "tiny");
  EXPECT_FALSE(bundle->about.at("experts").empty());
  EXPECT_EQ(bundle->about.at("kernel"), "linear_experts.faulty");
}

TEST_F(BundleTest, IsNotWrittenBeyondItsLimit) {
  EXPECT_EQ(bundle_of("linear", "tests/golden/glm_moe_dsa", 1000), "");
  EXPECT_NE(error.find("a bundle may take"), std::string::npos) << error;
  EXPECT_TRUE(fs::is_empty(folder.path));
}

// A head over a vocabulary is larger than a bundle may be: the outputs around the bad one are enough.
TEST_F(BundleTest, OfALargeMatrixTheBadPartIsKept) {
  constexpr std::int64_t kRows = 9000, kCols = 8, kBad = 6001;
  admission::Random random(3);
  std::vector<float> w = random.floats(kRows * kCols), x = random.floats(2 * kCols), y(2 * kRows);
  const auto view = [](std::vector<float>& values, const Shape& shape) {
    return Tensor{.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::f32, .shape = shape};
  };
  w[kBad * kCols + 2] = std::numeric_limits<float>::infinity();
  LinearArgs args{.x = view(x, {2, kCols}),
                  .w = {.format = QuantFormat::f32, .rows = kRows, .cols = kCols, .data = reinterpret_cast<const std::byte*>(w.data())},
                  .y = view(y, {2, kRows})};
  HostReader reader;
  const Captured<LinearArgs> before = captured(args, reader);
  reference(args);
  const fs::path path = folder.path / "head.safetensors";
  const Status written = write_bundle(path, before, captured(args, reader), {}, {.bytes = 300'000, .column = kBad});
  ASSERT_TRUE(written.ok()) << written.error().message();
  const Result<Bundle> bundle = read_bundle(path);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message();
  EXPECT_LT(std::get<Captured<LinearArgs>>(bundle->before).args.w.rows, kRows);
  ThreadPool pool(1);
  const Catalogue cpu = cpu_catalogue();
  const ReplayReport report = replay(*bundle, {{.name = "cpu", .info = detect_cpu(), .catalogue = cpu}}, pool).value();
  EXPECT_TRUE(report.wrong.empty()) << replay_text(report);
  EXPECT_FALSE(report.reference_finite);
  ASSERT_EQ(report.bad_inputs.size(), 1u);
  EXPECT_NE(report.bad_inputs[0].find("is inf"), std::string::npos) << report.bad_inputs[0];
  EXPECT_TRUE(report.rows.front().difference.agrees()) << "what was seen is what the reference makes of it";
}

TEST_F(BundleTest, OtherFilesAreNoBundles) {
  const Result<Bundle> bundle = read_bundle("tests/golden/glm_moe_dsa/reference.safetensors");
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.error().what.find("no bundle"), std::string::npos);
}

TEST_F(BundleTest, DamageIsRefusedByName) {
  const std::string experts = bundle_of("linear_experts", "tests/golden/glm_moe_dsa");
  EXPECT_TRUE(after(experts, [](auto&, auto&) {}).ok());
  expect_refused(after(experts, [](auto&, auto& text) { replace(text, "\"op\":\"linear_experts\"", "\"op\":\"linea\""); }),
                 "no op 'linea'");
  expect_refused(after(experts, [](auto&, auto& text) { replace(text, "\"version\":1", "\"version\":2"); }), "version");
  expect_refused(after(experts, [](auto&, auto& text) { text = "{"; }), "bundle");
  expect_refused(after(experts, [](auto& tensors, auto&) { tensor_named(tensors, "slots.begin").i32()[1] = 1 << 20; }), "slots.begin");
  expect_refused(after(experts, [](auto& tensors, auto&) { tensor_named(tensors, "slots.tokens").i32()[0] = -1; }), "slots.tokens");
  expect_refused(after(experts, [](auto& tensors, auto&) { tensors.erase(tensors.begin()); }), "");
  expect_refused(after(experts, [](auto&, auto& text) { replace(text, "\"rows\":", "\"rows\":1"); }), "");
  expect_refused(after(experts, [](auto&, auto& text) { replace(text, "\"precision\":0", "\"precision\":7"); }), "precision");

  const std::string attend = bundle_of("attend_latent", "tests/golden/glm_moe_dsa");
  EXPECT_TRUE(after(attend, [](auto&, auto&) {}).ok());
  expect_refused(after(attend, [](auto& tensors, auto&) { tensor_named(tensors, "places.table").i32()[0] = 9; }), "pages");
  expect_refused(after(attend, [](auto& tensors, auto&) { tensor_named(tensors, "places.positions").i32()[3] = 64; }), "page table");
  expect_refused(after(attend, [](auto& tensors, auto&) { tensor_named(tensors, "selection.positions").i32()[0] = 5; }), "selection");
  expect_refused(after(attend, [](auto& tensors, auto&) { tensor_named(tensors, "selection.counts").i32()[2] = 99; }), "selection.counts");

  const std::string embed = bundle_of("embed", "tests/golden/glm_moe_dsa");
  expect_refused(after(embed, [](auto& tensors, auto&) { tensor_named(tensors, "tokens").i32()[0] = 20; }), "tokens");
  expect_refused(after(embed, [](auto&, auto& text) { replace(text, "\"shape\":[20,", "\"shape\":[2000000000,"); }), "");
}

}  // namespace
}  // namespace reckoner::trace
