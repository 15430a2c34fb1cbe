// The same weights as other publishers lay them out: they must give the same logits.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>

#include "diagnose/verify/verify.h"
#include "formats/safetensors.h"
#include "formats/scratch_folder.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A golden checkpoint whose tensors a test renames, joins and adds to.
class Variant {
 public:
  explicit Variant(const std::string& golden) : golden_("tests/golden/" + golden) {
    const auto file = SafetensorsFile::open(golden_ + "/model.safetensors");
    EXPECT_TRUE(file.ok());
    for (const TensorEntry& entry : file->tensors()) add(entry.name, entry.tensor);
    config = read_text(golden_ + "/config.json");
  }
  void add(const std::string& name, const Tensor& tensor) {
    bytes_.emplace_back(tensor.data, tensor.data + tensor.bytes());
    tensors.push_back({name, {.data = bytes_.back().data(), .dtype = tensor.dtype, .shape = tensor.shape}});
  }
  // Takes a tensor out.
  Tensor take(const std::string& name) {
    for (auto at = tensors.begin(); at != tensors.end(); ++at) {
      if (at->name != name) continue;
      const Tensor tensor = at->tensor;
      tensors.erase(at);
      return tensor;
    }
    ADD_FAILURE() << name;
    return {};
  }
  // Writes it, opens it and compares it with what transformers computed for the original. Gives the notes of loading.
  std::vector<std::string> verify_in(const ScratchFolder& scratch) {
    scratch.write("config.json", config);
    EXPECT_TRUE(write_safetensors(scratch.path() / "model.safetensors", tensors, {}).ok());
    const auto model = open_model(scratch.path());
    EXPECT_TRUE(model.ok()) << model.error().message();
    if (!model.ok()) return {};
    const auto cases = read_reference(golden_ + "/reference.safetensors", (*model)->config);
    EXPECT_TRUE(cases.ok()) << cases.error().message();
    ThreadPool pool(1);
    const StepLimits limits{.max_tokens = 128, .max_samples = 128, .max_context = 128};
    StepRunner runner(**model, cpu_catalogue(), detect_cpu(), pool, Precision::exact, limits);
    for (const VerifyCase& result : verify(runner, *cases, {0})) EXPECT_TRUE(result.passed()) << result.runs.front().failure;
    return (*model)->notes;
  }

  std::vector<NamedTensor> tensors;
  std::string config;

 private:
  std::string golden_;
  std::deque<std::vector<std::byte>> bytes_;
};

// All experts of a layer side by side: gate_up_proj [experts, 2 * inner, hidden] and down_proj [experts, hidden, inner].
void fuse_experts(Variant& variant, const std::string& layer) {
  constexpr std::int64_t kExperts = 8;
  const std::string prefix = "model.layers." + layer + ".mlp.experts.";
  std::vector<std::byte> gate_up;
  std::vector<std::byte> down;
  Tensor one;
  const auto append = [&](std::vector<std::byte>& to, std::int64_t expert, const std::string& projection) {
    one = variant.take(prefix + std::to_string(expert) + "." + projection + ".weight");
    to.insert(to.end(), one.data, one.data + one.bytes());
  };
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    append(gate_up, expert, "gate_proj");
    append(gate_up, expert, "up_proj");
  }
  variant.add(prefix + "gate_up_proj", {gate_up.data(), one.dtype, {kExperts, 2 * one.dim(0), one.dim(1)}});
  for (std::int64_t expert = 0; expert < kExperts; ++expert) append(down, expert, "down_proj");
  variant.add(prefix + "down_proj", {down.data(), one.dtype, {kExperts, one.dim(0), one.dim(1)}});
}

TEST(Variants, ExpertsFusedInThreeDimensions) {
  Variant variant("glm_moe_dsa");
  for (const std::string layer : {"1", "2", "3"}) fuse_experts(variant, layer);
  EXPECT_EQ(variant.tensors.size(), 149u - 3 * (24 - 2));
  variant.verify_in(ScratchFolder());
}

// Kimi-K2.5 is a Kimi-K2 inside a multimodal model.
TEST(Variants, TextModelOfAMultimodalOne) {
  Variant variant("kimi_k2");
  for (NamedTensor& entry : variant.tensors) entry.name = "language_model." + entry.name;
  std::vector<std::byte> pixels(64);
  variant.add("vision_tower.patch_embed.weight", {pixels.data(), DType::bf16, {4, 8}});
  variant.add("mm_projector.linear.bias", {pixels.data(), DType::bf16, {8}});
  variant.config = R"({"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "vision_config": {"depth": 27},
                       "text_config": )" +
                   variant.config + "}";
  const std::vector<std::string> notes = variant.verify_in(ScratchFolder());
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.front(), "2 tensors of other parts of the model (0.0 MB, e.g. its vision tower) are skipped: text only");
}

// Transformers 4 spelled rope as rope_theta and rope_scaling, with "type" for "rope_type".
TEST(Variants, RopeAsTransformers4SpellsIt) {
  Variant variant("deepseek_v3_groups");
  const std::size_t begin = variant.config.find("\"rope_parameters\"");
  const std::size_t end = variant.config.find('}', begin) + 1;
  variant.config.replace(begin, end - begin, R"("rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64})");
  variant.verify_in(ScratchFolder());
}

}  // namespace
}  // namespace reckoner
