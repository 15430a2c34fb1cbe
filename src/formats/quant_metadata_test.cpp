#include "formats/quant_metadata.h"

#include <gtest/gtest.h>

#include "formats/scratch_folder.h"

namespace reckoner {
namespace {

Result<QuantMetadata> parse(const std::string& config, const std::string& hf_quant_config = {}) {
  const Result<JsonDocument> document = parse_json(config, "config.json");
  if (!document) return document.error();
  if (hf_quant_config.empty()) return parse_quant_metadata(document->root(), std::nullopt);
  const Result<JsonDocument> other = parse_json(hf_quant_config, "hf_quant_config.json");
  if (!other) return other.error();
  return parse_quant_metadata(document->root(), other->root());
}

constexpr const char* kConfig = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["a*"],
  "producer": {"name": "modelopt", "version": "0.46"}, "kv_cache_scheme": {"num_bits": 8, "type": "float"},
  "config_groups": {"group_0": {"weights": {"group_size": 16}}}}})";

TEST(QuantMetadata, NotQuantised) {
  const Result<QuantMetadata> quant = parse("{}");
  ASSERT_TRUE(quant.ok());
  EXPECT_EQ(quant->method, "");
  EXPECT_EQ(quant->settings[0].value, "none");
}

TEST(QuantMetadata, ReadsEitherFile) {
  const Result<QuantMetadata> one = parse(kConfig);
  ASSERT_TRUE(one.ok()) << one.error().what;
  EXPECT_EQ(one->algorithm, "NVFP4");
  EXPECT_EQ(one->group_size, 16);
  EXPECT_EQ(one->exclude, (std::vector<std::string>{"a*"}));
  EXPECT_EQ(one->kv_cache, "FP8");
  EXPECT_EQ(one->producer, "modelopt 0.46");
  EXPECT_EQ(one->source, "config.json: quantization_config");
  const Result<QuantMetadata> other =
      parse("{}", R"({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": null, "exclude_modules": ["b"]}})");
  ASSERT_TRUE(other.ok()) << other.error().what;
  EXPECT_EQ(other->group_size, 16);
  EXPECT_EQ(other->kv_cache, "");
  EXPECT_EQ(other->source, "hf_quant_config.json");
}

TEST(QuantMetadata, HfQuantConfigWinsAndTheDifferenceIsNoted) {
  const Result<QuantMetadata> quant =
      parse(kConfig, R"({"quantization": {"quant_algo": "FP8", "exclude_modules": ["a*", "lm_head", "b"]}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_EQ(quant->algorithm, "FP8");
  EXPECT_EQ(quant->settings[0].value, "modelopt FP8");
  EXPECT_EQ(quant->settings[0].note, "config.json: quantization_config says modelopt NVFP4, groups of 16; hf_quant_config.json wins");
  EXPECT_EQ(quant->settings[1].note, "config.json: quantization_config lacks 'b' and 1 more; hf_quant_config.json wins");
  EXPECT_EQ(quant->settings[2].note, "config.json: quantization_config says FP8; hf_quant_config.json wins");
}

TEST(QuantMetadata, StaleBlockOfATextModelIsOverruled) {
  const Result<QuantMetadata> quant = parse(R"({"text_config": {"quantization_config": {"quant_method": "compressed-tensors"}}})",
                                            R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_EQ(quant->method, "modelopt");
  EXPECT_EQ(quant->settings[0].note, "config.json: text_config.quantization_config says compressed-tensors; hf_quant_config.json wins");
}

TEST(QuantMetadata, Errors) {
  EXPECT_EQ(parse(R"({"quantization_config": {"quant_method": "gptq"}})").error().what,
            "config.json: field 'quantization_config.quant_method': expected one of the supported methods \"modelopt\", "
            "\"compressed-tensors\", \"fp8\", found the string \"gptq\"");
  EXPECT_EQ(parse(R"({"quantization_config": {}})").error().what, "config.json: field 'quantization_config.quant_method': missing");
  EXPECT_EQ(parse("{}", R"({"quantization": {"quant_algo": "NVFP4", "group_size": 32}})").error().what,
            "hf_quant_config.json: field 'quantization': expected a group_size of 16 for NVFP4, found 32");
  EXPECT_EQ(parse("{}", "{}").error().what, "hf_quant_config.json: field 'quantization': missing");
  EXPECT_EQ(parse("{}", R"({"quantization": {"exclude_modules": "lm_head"}})").error().what,
            "hf_quant_config.json: field 'quantization.exclude_modules': expected an array, found the string \"lm_head\"");
}

TEST(QuantMetadata, GlobsAsFnmatchHasThem) {
  struct Case {
    const char *glob, *text;
    bool matches;
  };
  const Case cases[] = {
      {"lm_head", "lm_head", true},
      {"lm_head", "lm_head2", false},
      {"model.layers.3.self_attn*", "model.layers.3.self_attn.q_a_proj", true},
      {"*mlp*", "model.mlp.x", true},
      {"*.experts.*", "mlp.shared_experts.up", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"[abc]x", "bx", true},
      {"[!abc]x", "bx", false},
      {"[!abc]x", "dx", true},
      {"[a-c]", "b", true},
      {"[a-c]", "-", false},
      {"[]]", "]", true},
      {"[", "[", true},
      {"[ab", "[ab", true},
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"**a", "bba", true},
      {"a*b*c", "aXbXbYc", true},
      {"a*b*c", "aXbXbY", false},
      {"model.layers.7*", "model.layers.78.mlp", true},
  };
  for (const Case& c : cases) EXPECT_EQ(glob_matches(c.glob, c.text), c.matches) << c.glob << " " << c.text;
}

TEST(QuantMetadata, ReadsThePocketModel) {
  const Result<QuantMetadata> quant = read_quant_metadata("models/pocket");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_EQ(quant->settings[0].value, "modelopt NVFP4, groups of 16");
  EXPECT_EQ(quant->source, "models/pocket/hf_quant_config.json");
  for (const Setting& setting : quant->settings) EXPECT_EQ(setting.note, "");
  EXPECT_TRUE(excluded(*quant, "model.layers.1.self_attn.q_a_proj"));
  EXPECT_TRUE(excluded(*quant, "model.layers.4.mlp.experts.0.up_proj"));
  EXPECT_FALSE(excluded(*quant, "model.layers.1.mlp.experts.0.up_proj"));
}

}  // namespace
}  // namespace reckoner
