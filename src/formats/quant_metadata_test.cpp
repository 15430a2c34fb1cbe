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

TEST(QuantMetadata, ReadsCompressedTensors) {
  const Result<QuantMetadata> quant = parse(R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:[broken"],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_EQ(quant->format, "pack-quantized");
  EXPECT_EQ(quant->group_size, 32);
  EXPECT_TRUE(quant->targets.empty());
  EXPECT_TRUE(excluded(*quant, "lm_head"));
  EXPECT_FALSE(excluded(*quant, "model.lm_head"));  // names are compared whole
  EXPECT_TRUE(excluded(*quant, "model.layers.3.self_attn.q_a_proj"));
  EXPECT_TRUE(excluded(*quant, "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(excluded(*quant, "model.layers.1.mlp.experts.7.gate_proj"));
}

TEST(QuantMetadata, ReadsTargetsThatAreNotAllLinearLayers) {
  const Result<QuantMetadata> quant = parse(R"({"quantization_config": {"quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["re:.*experts\\.[0-9]+.*"]}}}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_TRUE(quant->targets.matches("model.layers.1.mlp.experts.7.gate_proj"));
  EXPECT_FALSE(quant->targets.matches("model.layers.1.mlp.shared_experts.gate_proj"));
}

TEST(QuantMetadata, ReadsFp8) {
  const Result<QuantMetadata> quant = parse(R"({"quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0",
    "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "model.layers.0", "mlp.gate"]}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_EQ(quant->scale_fmt, "ue8m0");
  EXPECT_TRUE(excluded(*quant, "lm_head"));
  EXPECT_TRUE(excluded(*quant, "model.layers.0.self_attn.o_proj"));  // what is inside
  EXPECT_FALSE(excluded(*quant, "model.layers.01.self_attn.o_proj"));
  EXPECT_TRUE(excluded(*quant, "model.layers.7.mlp.gate"));  // the end of a name
  EXPECT_FALSE(excluded(*quant, "model.layers.7.mlp.gate_proj"));
}

TEST(QuantMetadata, ReadsTheLayersOfMixedPrecision) {
  const Result<QuantMetadata> quant = parse("{}", R"({"quantization": {"quant_algo": "MIXED_PRECISION",
    "quantized_layers": {"model.layers.1.mlp.up_proj": {"quant_algo": "NVFP4"}}}})");
  ASSERT_TRUE(quant.ok()) << quant.error().what;
  EXPECT_TRUE(quant->targets.matches("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(quant->targets.matches("model.layers.2.mlp.up_proj"));
}

// One look-up a part of the name must say what going through the patterns says.
TEST(ModulePatterns, NamesAreFoundEitherWay) {
  const ModulePatterns patterns({"a.b", "c", "d.e.f"}, PatternDialect::names);
  for (const char* module :
       {"a.b", "a.b.x", "x.a.b", "x.a.b.y", "c", "c.d", "x.c", "cc", "a.bb", "aa.b", "d.e.f", "d.e", "e.f", "x.d.e.f", ""}) {
    bool any = false;
    for (std::size_t i = 0; i < patterns.texts().size(); ++i) any |= patterns.matches(i, module);
    EXPECT_EQ(patterns.matches(module), any) << module;
  }
  EXPECT_TRUE(patterns.matches("x.a.b"));
  EXPECT_FALSE(patterns.matches("x.a.b.y"));
}

TEST(ModulePatterns, TellNamesFromPatterns) {
  EXPECT_FALSE(ModulePatterns({"model.layers.0*"}, PatternDialect::globs).is_name(0));
  EXPECT_TRUE(ModulePatterns({"lm_head"}, PatternDialect::globs).is_name(0));
  EXPECT_FALSE(ModulePatterns({"re:lm_.*"}, PatternDialect::names_or_regexes).is_name(0));
  // Too long for a regular expression that recurses over the text: no match, no crash.
  EXPECT_FALSE(ModulePatterns({"re:(a|b)*"}, PatternDialect::names_or_regexes).matches(std::string(100'000, 'a')));
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
