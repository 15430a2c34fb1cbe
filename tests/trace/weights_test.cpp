// Faults in the weights on disk: named to the byte, and to the expert.
#include "diagnose/trace/against.h"
#include "support/model_copy.h"
#include "trace_support.h"

namespace reckoner::trace {
namespace {

constexpr std::int64_t kLayer = 2;

std::string module(std::int64_t expert, const std::string& projection) {
  return "model.layers." + std::to_string(kLayer) + ".mlp.experts." + std::to_string(expert) + "." + projection;
}

// The expert of the layer that most of the prompt's tokens go to.
std::int64_t busiest_expert(const TraceReport& report) {
  for (const RouterBalance& router : report.routers) {
    if (router.layer != kLayer) continue;
    return std::max_element(router.chosen.begin(), router.chosen.end()) - router.chosen.begin();
  }
  throw std::runtime_error("no router in this layer");
}

std::int64_t offset_of(const ModelCopy& copy, const std::string& tensor) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(copy.path() / kFile);
  if (!file) throw std::runtime_error(file.error().message());
  const TensorEntry* const entry = file->find(tensor);
  if (entry == nullptr) throw std::runtime_error("no tensor " + tensor);
  return entry->file_offset;
}

// One block scale of one expert is NaN: 0x7f in E4M3.
TEST(WeightFaults, ANaNBlockScaleIsNamedByTensorFileAndOffset) {
  ModelCopy copy(Base::nvfp4);
  const TraceFolder folder;
  std::int64_t expert = 0;
  std::vector<std::int32_t> prompt;
  {
    TraceStand healthy(copy.path());
    prompt = some_prompt(*healthy.model, 12);
    const TraceReport report = healthy.run(cpu_catalogue(), {.prompt = prompt, .decode_steps = 0});
    EXPECT_FALSE(report.origin);
    expert = busiest_expert(report);
  }
  const std::string scales = module(expert, "down_proj") + ".weight_scale";
  const std::int64_t blocks = [&] {
    TraceStand stand(copy.path());
    return stand.model->weights.layers[kLayer].moe.down[static_cast<std::size_t>(expert)].cols / 16;
  }();
  constexpr std::int64_t kRow = 5;
  const std::int64_t block = blocks - 1;
  copy.set_bytes(kFile, scales, kRow * blocks + block, {0x7f});

  TraceStand broken(copy.path());
  TraceWishes wishes{.prompt = prompt, .decode_steps = 0};
  wishes.bundle.path = folder.path / "bundle.safetensors";
  const TraceReport report = broken.run(cpu_catalogue(), wishes);
  ASSERT_TRUE(report.origin.has_value());
  const Origin& origin = *report.origin;
  EXPECT_EQ(origin.call.text(), "layer 2, experts: linear_experts down_proj");
  EXPECT_EQ(origin.cause, Cause::weight_scale) << origin.sentence();
  EXPECT_EQ(origin.expert, expert);
  EXPECT_EQ(origin.weight, module(expert, "down_proj"));
  EXPECT_EQ(origin.weight_row, kRow);
  EXPECT_EQ(origin.weight_col, block * 16);
  EXPECT_EQ(origin.place, (FilePlace{scales, kFile, offset_of(copy, scales) + kRow * blocks + block}));
  // Every kernel makes the same of it, and replay says that it is the weight.
  ASSERT_NE(origin.bundle, "") << origin.bundle_error;
  const ReplayReport replayed = broken.replayed(origin.bundle, cpu_catalogue());
  EXPECT_TRUE(replayed.wrong.empty()) << replay_text(replayed);
  ASSERT_EQ(replayed.bad_inputs.size(), 1u) << replay_text(replayed);
  EXPECT_NE(replayed.bad_inputs[0].find("block scale at row 5, column " + std::to_string(block * 16)), std::string::npos);
  EXPECT_NE(replayed.conclusion.find("bad already"), std::string::npos) << replayed.conclusion;
  EXPECT_EQ(replayed.about.at("bytes"), scales + " at byte " + std::to_string(origin.place->file_offset) + " of " + kFile);
}

// The sign of one FP8 code: every value stays finite, so only a comparison can find it.
TEST(WeightFaults, AFlippedByteOfAnExpertIsFoundAgainstADumpOfTheGoodModel) {
  ModelCopy copy(Base::fp8);
  const TraceFolder folder;
  const std::string dump_path = (folder.path / "good.safetensors").string();
  std::int64_t expert = 0;
  std::vector<std::int32_t> prompt;
  std::string before;
  {
    TraceStand healthy(copy.path());
    prompt = some_prompt(*healthy.model, 12);
    const TraceReport report = healthy.run(cpu_catalogue(), {.prompt = prompt, .decode_steps = 0, .keep_values = Wish::yes});
    expert = busiest_expert(report);
    ASSERT_TRUE(report.values.save(dump_path, prompt, {}).ok());
    const Result<SafetensorsFile> dump = SafetensorsFile::open(dump_path);
    const Result<AgainstReport> same = compare_with(*dump, report, 4, row_tolerance(Precision::exact, 4));
    ASSERT_TRUE(same.ok());
    EXPECT_FALSE(same->first.has_value()) << "with itself";
    EXPECT_TRUE(same->unmatched.empty());
  }
  const std::string codes = module(expert, "up_proj") + ".weight";
  const std::string file = copy.read(kFile);
  const auto at = static_cast<std::size_t>(offset_of(copy, codes)) + 7;
  copy.set_bytes(kFile, codes, 7, {static_cast<unsigned char>(file[at]) ^ 0x80});

  TraceStand broken(copy.path());
  const TraceReport report =
      broken.run(cpu_catalogue(), {.prompt = prompt, .decode_steps = 0, .check_ops = Wish::yes, .keep_values = Wish::yes});
  EXPECT_FALSE(report.origin.has_value());
  EXPECT_FALSE(report.wrong.has_value()) << "the kernels are right: " << report.wrong->sentence();
  const Result<SafetensorsFile> dump = SafetensorsFile::open(dump_path);
  const Result<AgainstReport> against = compare_with(*dump, report, 4, row_tolerance(Precision::exact, 4));
  ASSERT_TRUE(against.ok()) << against.error().message();
  ASSERT_TRUE(against->first.has_value());
  EXPECT_EQ(against->first->place, "layer 2, experts: linear_experts up_proj.y, expert " + std::to_string(expert));
  EXPECT_EQ(against->first->expert, expert);
  EXPECT_EQ(against->first->column, 0) << "the flipped element is in the first row of the weight";
}

// A dump as another implementation makes it: transformers' reference, one value of it changed.
TEST(Against, AChangedValueOfAReferenceIsTheFirstDivergence) {
  const std::string folder = "tests/golden/glm_moe_dsa/";
  const Result<SafetensorsFile> reference = SafetensorsFile::open(folder + "reference.safetensors");
  ASSERT_TRUE(reference.ok());
  TraceStand stand(folder);
  const Result<std::vector<std::int32_t>> prompt = prompt_of(*reference, stand.model->config.vocab_size);
  ASSERT_TRUE(prompt.ok());
  const TraceReport report = stand.run(cpu_catalogue(), {.prompt = *prompt, .decode_steps = 0, .keep_values = Wish::yes});
  const double tolerance = row_tolerance(Precision::exact, 4);
  const Result<AgainstReport> same = compare_with(*reference, report, 4, tolerance);
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_FALSE(same->first.has_value()) << same->first->place << " " << same->first->error;
  EXPECT_EQ(same->aligned.size(), 6u) << "hidden.0 to hidden.4, and logits";
  EXPECT_TRUE(same->unmatched.empty());

  // hidden.3, token 40, element 17; and later ones, which are not the first.
  std::vector<std::vector<std::byte>> bytes;
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& entry : reference->tensors()) {
    bytes.emplace_back(entry.tensor.data, entry.tensor.data + entry.tensor.bytes());
    Tensor tensor = entry.tensor;
    tensor.data = bytes.back().data();
    std::string name = entry.name;
    if (name == "hidden.3" || name == "logits") tensor.rows(40, 1).f32()[17] += 3;
    if (name == "hidden.2") name = "model.layers.1.output";  // what the second layer returns
    if (name == "hidden.4") name = "model.norm.output";
    tensors.push_back({name, tensor});
  }
  float extra = 1;
  tensors.push_back({"model.rotary.cosine", {.data = reinterpret_cast<std::byte*>(&extra), .dtype = DType::f32, .shape = {1}}});
  const TraceFolder scratch;
  ASSERT_TRUE(write_safetensors(scratch.path / "changed.safetensors", tensors).ok());
  const Result<SafetensorsFile> changed = SafetensorsFile::open(scratch.path / "changed.safetensors");
  const Result<AgainstReport> found = compare_with(*changed, report, 4, tolerance);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->aligned.size(), 6u);
  ASSERT_TRUE(found->first.has_value());
  EXPECT_EQ(found->first->theirs, "hidden.3");
  EXPECT_EQ(found->first->position, 40);
  EXPECT_EQ(found->first->column, 17);
  EXPECT_NEAR(found->first->found - found->first->expected, -3, 1e-3);
  ASSERT_EQ(found->unmatched.size(), 1u);
  EXPECT_EQ(found->unmatched[0], "model.rotary.cosine: no rule for this name");
}

TEST(Against, NamesOfOthers) {
  TraceStand stand("tests/golden/glm_moe_dsa");
  const TraceReport report =
      stand.run(cpu_catalogue(), {.prompt = some_prompt(*stand.model, 3), .decode_steps = 0, .keep_values = Wish::yes});
  const auto ours = [&](std::string_view theirs) { return our_name_of(theirs, 4, report.values); };
  EXPECT_EQ(ours("layers.3.attn_out"), "layers.3.attention");
  EXPECT_EQ(ours("model.layers.3.self_attn.o_proj.output"), "layers.3.attention");
  EXPECT_EQ(ours("language_model.model.layers.1.mlp.output"), "layers.1.feed_forward");
  EXPECT_EQ(ours("model.layers.2.mlp.gate"), "layers.2.router_logits");
  EXPECT_EQ(ours("model.layers.0.self_attn.q_a_proj.output"), "layers.0.attention.linear.q_a_proj.y");
  EXPECT_EQ(ours("model.layers.1.mlp.shared_experts.up_proj"), "layers.1.shared_experts.linear.up_proj.y");
  EXPECT_EQ(ours("model.layers.1.mlp.experts.5.up_proj"), "") << "one expert of many is not kept by itself";
  EXPECT_EQ(ours("hidden_states.2"), "hidden.2");
  EXPECT_EQ(ours("model.layers.3"), "head.rms_norm.x") << "before the final norm";
  EXPECT_EQ(ours("lm_head"), "logits");
  EXPECT_EQ(ours("model.embed_tokens"), "hidden.0");
  EXPECT_EQ(ours("something"), "");
}

}  // namespace
}  // namespace reckoner::trace
