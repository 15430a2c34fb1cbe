#include "formats/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "formats/scratch_folder.h"

namespace reckoner {
namespace {

// Four layers, the first dense; what every case below changes.
constexpr std::string_view kBase = R"(
  "model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"],
  "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 320, "intermediate_size": 96, "max_position_embeddings": 1024,
  "rms_norm_eps": 1e-05, "num_attention_heads": 4,
  "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 20,
  "index_n_heads": 16, "index_head_dim": 32, "index_topk": 16,
  "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32, "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "rope_theta": 1000000, "eos_token_id": 1)";

// kBase with the fields of `changes` replaced or added ("\"a\": 1, \"b\": 2"); a field set to null is absent.
std::string with(const std::string& changes) {
  std::string text = "{" + std::string(kBase);
  for (std::size_t at = changes.find('"'); at != std::string::npos;) {
    const std::size_t end = changes.find("\":", at);
    const std::string key = changes.substr(at, end - at + 2);
    if (const std::size_t old = text.find(key); old != std::string::npos) text.replace(old + 1, 1, "_");
    // The next field starts behind a comma at depth 0.
    int depth = 0;
    for (at = end + 2; at < changes.size() && (depth > 0 || changes[at] != ','); ++at)
      depth += changes[at] == '[' || changes[at] == '{' ? 1 : changes[at] == ']' || changes[at] == '}' ? -1 : 0;
    at = changes.find('"', at);
  }
  return text + (changes.empty() ? "" : ", ") + changes + "}";
}

Result<ModelConfig> parse(const std::string& text, const std::string& generation = {}) {
  const Result<JsonDocument> document = parse_json(text, "config.json");
  if (!document) return document.error();
  if (generation.empty()) return parse_model_config(document->root(), std::nullopt);
  const Result<JsonDocument> other = parse_json(generation, "generation_config.json");
  if (!other) return other.error();
  return parse_model_config(document->root(), other->root());
}

// "value | source | note" of a setting.
std::string setting(const ModelConfig& config, std::string_view name) {
  for (const Setting& entry : config.settings) {
    if (entry.name == name) return entry.value + " | " + entry.source + " | " + entry.note;
  }
  return "none";
}

std::string letters(const ModelConfig& config) {
  std::string text;
  for (const IndexerKind kind : config.indexer_kinds) text += kind == IndexerKind::full ? 'F' : 'S';
  return text;
}

TEST(ModelConfig, EachKindOfMistakeHasItsMessage) {
  struct Case {
    std::string name, changes, expected;
  };
  const Case cases[] = {
      {"missing size", R"("hidden_size": null)", "field 'hidden_size' is missing: every model needs it"},
      {"missing model type", R"("model_type": null)", "field 'model_type': missing"},
      {"string for a number", R"("hidden_size": "64")",
       "field 'hidden_size': expected an integer from 1 to 16777216, found the string \"64\""},
      {"zero", R"("vocab_size": 0)", "field 'vocab_size': expected an integer from 1 to 16777216, found the number 0"},
      {"too many layers", R"("num_hidden_layers": 10001)",
       "field 'num_hidden_layers': expected an integer from 1 to 10000, found the number 10001"},
      {"fraction", R"("hidden_size": 64.5)", "field 'hidden_size': expected an integer from 1 to 16777216, found the number 64.5"},
      {"epsilon", R"("rms_norm_eps": 0)", "field 'rms_norm_eps': expected a number above 0 and at most 1, found the number 0"},
      {"activation", R"("hidden_act": "gelu")", "field 'hidden_act': expected \"silu\", the only one supported, found the string \"gelu\""},
      {"scoring", R"("scoring_func": "softmax")",
       "field 'scoring_func': expected \"sigmoid\", the only one supported, found the string \"softmax\""},
      {"selection", R"("topk_method": "greedy")",
       "field 'topk_method': expected \"noaux_tc\", the only one supported, found the string \"greedy\""},
      {"bias", R"("attention_bias": true)", "field 'attention_bias': expected false, the only value supported with MLA, found true"},
      {"kv heads", R"("num_key_value_heads": 3)", "num_attention_heads (4) is no multiple of num_key_value_heads (3)"},
      {"odd rope", R"("qk_rope_head_dim": 15)", "field 'qk_rope_head_dim': expected an even number, found 15"},
      {"head sum", R"("qk_head_dim": 41)", "field 'qk_head_dim': expected qk_nope_head_dim + qk_rope_head_dim = 40, found 41"},
      {"top-k of nothing", R"("index_topk": 0)", "field 'index_topk': expected an integer from 1 to 1073741824, found the number 0"},
      {"index heads", R"("index_n_heads": null)", "field 'index_n_heads' is missing: index_topk asks for sparse attention"},
      {"index dim", R"("index_head_dim": 8)", "field 'index_head_dim': expected at least qk_rope_head_dim = 16, found 8"},
      {"groups", R"("n_group": 3)", "field 'n_group': expected a divisor of n_routed_experts = 8, found 3"},
      {"kept groups", R"("n_group": 2, "topk_group": 3)", "field 'topk_group': expected at most n_group = 2, found 3"},
      {"small groups", R"("n_group": 8)", "field 'n_group': expected at least 2 experts a group, found 8 experts in 8 groups"},
      {"too many experts", R"("num_experts_per_tok": 9)",
       "field 'num_experts_per_tok': expected at most 8, the experts in topk_group = 1 groups, found 9"},
      {"too many in groups", R"("n_group": 4, "num_experts_per_tok": 3)",
       "field 'num_experts_per_tok': expected at most 2, the experts in topk_group = 1 groups, found 3"},
      {"expert width", R"("moe_intermediate_size": null)",
       "field 'moe_intermediate_size' is missing: n_routed_experts asks for a mixture of experts"},
      {"dense width", R"("intermediate_size": null)", "field 'intermediate_size' is missing: some layers are dense"},
      {"no experts",
       R"("n_routed_experts": null, "first_k_dense_replace": null, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"])",
       "field 'n_routed_experts' is missing: some layers are sparse"},
      {"dense layers", R"("first_k_dense_replace": 5)",
       "field 'first_k_dense_replace': expected an integer from 0 to 4, found the number 5"},
      {"which are dense", R"("first_k_dense_replace": null)",
       "neither mlp_layer_types nor first_k_dense_replace says which layers are dense"},
      {"mlp words", R"("mlp_layer_types": ["dense", "spare", "sparse", "sparse"])",
       "field 'mlp_layer_types[1]': expected \"dense\" or \"sparse\", found the string \"spare\""},
      {"mlp length", R"("mlp_layer_types": ["dense"])", "field 'mlp_layer_types': expected 4 entries (num_hidden_layers), found 1"},
      {"mlp conflict", R"("mlp_layer_types": ["dense", "dense", "sparse", "sparse"])",
       "field 'mlp_layer_types': contradicts first_k_dense_replace and moe_layer_freq: layer 1 is dense here and sparse there"},
      {"indexer words", R"("indexer_types": ["full", "F", "full", "full"])",
       "field 'indexer_types[1]': expected \"full\" or \"shared\", found the string \"F\""},
      {"indexer length", R"("indexer_types": ["full"])", "field 'indexer_types': expected 4 entries (num_hidden_layers), found 1"},
      {"indexer first", R"("indexer_types": ["shared", "full", "full", "full"])",
       "indexer_types: layer 0 is shared, but there is no layer before it to share with"},
      {"pattern length", R"("index_topk_pattern": "FSF")", "field 'index_topk_pattern': expected 4 letters (num_hidden_layers), found 3"},
      {"pattern letters", R"("index_topk_pattern": "FSXF")",
       "field 'index_topk_pattern': expected only the letters F and S, found the string \"FSXF\""},
      {"no theta", R"("rope_theta": null)",
       "field 'rope_theta' is missing: neither in rope_parameters, nor in rope_scaling, nor at the top level"},
      {"two thetas", R"("rope_parameters": {"rope_theta": 8e6, "rope_type": "default"})",
       "field 'rope_theta': contradicts field 'rope_parameters.rope_theta': 1000000 and 8000000"},
      {"theta text", R"("rope_theta": "1e6")", "field 'rope_theta': expected a number, found the string \"1e6\""},
      {"theta range", R"("rope_theta": 1)", "field 'rope_theta': expected a number above 1 and at most 1000000000000, found the number 1"},
      {"rope object", R"("rope_scaling": [])", "field 'rope_scaling': expected an object, found an array of 0"},
      {"rope type", R"("rope_scaling": {"type": "llama3", "factor": 8})",
       "field 'rope_scaling.type': expected one of the supported types \"default\", \"yarn\", \"deepseek_yarn\", found the string "
       "\"llama3\""},
      {"two types", R"("rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_type": "default"})",
       "field 'rope_scaling.type': contradicts field 'rope_parameters.rope_type': \"yarn\" and \"default\""},
      {"factor alone", R"("rope_scaling": {"factor": 8})", "field 'rope_scaling': has a factor but no rope_type"},
      {"yarn factor", R"("rope_scaling": {"type": "yarn"})", "field 'rope_scaling.factor': missing"},
      {"yarn context", R"("rope_scaling": {"type": "yarn", "factor": 40})",
       "field 'rope_scaling.original_max_position_embeddings': missing"},
      {"yarn range", R"("rope_scaling": {"type": "yarn", "factor": 0.5})",
       "field 'rope_scaling.factor': expected a number from 1 to 1000000, found the number 0.5"},
      {"yarn attention",
       R"("rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "attention_factor": 1})",
       "field 'rope_scaling.attention_factor': is not supported"},
      {"partial", R"("kv_lora_rank": null, "head_dim": 16, "partial_rotary_factor": 0.3)",
       "expected an even number of rotated dimensions, found head_dim 16 x partial_rotary_factor 0.3"},
      {"eos outside", R"("eos_token_id": [1, 320])", "field 'eos_token_id': expected ids below vocab_size = 320, found 320"},
      {"eos text", R"("eos_token_id": "</s>")",
       "field 'eos_token_id': expected an integer from 0 to 2147483647, found the string \"</s>\""},
      {"pad", R"("pad_token_id": 320)", "field 'pad_token_id': expected an integer from -1 to 319, found the number 320"},
      {"architectures", R"("architectures": "X")", "field 'architectures': expected an array, found the string \"X\""},
      {"mtp", R"("num_nextn_predict_layers": 17)",
       "field 'num_nextn_predict_layers': expected an integer from 0 to 16, found the number 17"},
  };
  for (const Case& c : cases) {
    const Result<ModelConfig> config = parse(with(c.changes));
    EXPECT_EQ(config ? "parsed" : config.error().what, "config.json: " + c.expected) << c.name;
  }
  EXPECT_EQ(parse("[]").error().what, "config.json: expected an object, found an array of 0");
}

TEST(ModelConfig, RopeInItsThreeDialects) {
  const char* const dialects[] = {
      R"("rope_theta": 8e6)",
      R"("rope_theta": null, "rope_parameters": {"rope_theta": 8000000.0, "rope_type": "default"})",
      R"("rope_theta": 8000000, "rope_scaling": {"rope_theta": 8000000.0, "type": "default"}, "rope_parameters": {"rope_theta": 8e6})",
  };
  for (const char* const dialect : dialects) {
    const Result<ModelConfig> config = parse(with(dialect));
    ASSERT_TRUE(config.ok()) << config.error().what;
    EXPECT_EQ(config->rope.theta, 8e6);
    EXPECT_FALSE(config->rope.is_yarn());
    EXPECT_TRUE(config->rope.interleave);
    EXPECT_TRUE(config->rope.indexer_interleave);
  }
}

TEST(ModelConfig, YarnAndDeepSeekDefaults) {
  const Result<ModelConfig> config = parse(with(
      R"("model_type": "deepseek_v32", "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096})"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(config->rope.type, "yarn");
  EXPECT_EQ(config->rope.factor, 40);
  EXPECT_EQ(config->rope.mscale_all_dim, 1);
  EXPECT_EQ(config->rope.original_max_position_embeddings, 4096);
  EXPECT_TRUE(config->rope.interleave);
  EXPECT_FALSE(config->rope.indexer_interleave);
  EXPECT_EQ(setting(*config, "indexer_rope_interleave"), "false | default | not in the file; this is what deepseek_v32 models use");
}

TEST(ModelConfig, IndexerLayersInTheirSpellings) {
  struct Case {
    std::string changes, layers, setting;
  };
  const Case cases[] = {
      {"", "FFFF", "4 full, 0 shared | default | the file does not say; every layer owns an indexer"},
      {R"("index_topk_pattern": "FSFS")", "FSFS", "2 full, 2 shared | index_topk_pattern | "},
      {R"("index_topk_pattern": ["F", "S", "full", "shared"])", "FSFS", "2 full, 2 shared | index_topk_pattern | "},
      {R"("index_topk_freq": 2)", "FFSF", "3 full, 1 shared | index_topk_freq 2, index_skip_topk_offset 2 | "},
      {R"("index_topk_freq": 4, "index_skip_topk_offset": 3)", "FFFS", "3 full, 1 shared | index_topk_freq 4, index_skip_topk_offset 3 | "},
      {R"("indexer_types": ["full", "shared", "full", "shared"], "index_topk_pattern": "FSSS", "index_topk_freq": 1)", "FSFS",
       "2 full, 2 shared | indexer_types | index_topk_pattern says otherwise (1 full, 3 shared) and is overruled; index_topk_freq 1, "
       "index_skip_topk_offset 2 says otherwise (4 full, 0 shared) and is overruled"},
      {R"("index_topk_pattern": null, "indexer_types": ["full", "shared", "full", "shared"])", "FSFS",
       "2 full, 2 shared | indexer_types | "},
  };
  for (const Case& c : cases) {
    const Result<ModelConfig> config = parse(with(c.changes));
    ASSERT_TRUE(config.ok()) << config.error().what;
    EXPECT_EQ(letters(*config), c.layers) << c.changes;
    EXPECT_EQ(setting(*config, "indexer layers"), c.setting) << c.changes;
  }
}

TEST(ModelConfig, Glm52HasItsPublishedFullLayers) {
  // 78 layers, frequency 4, offset 3: full are 0, 1, 2, 6, 10, ..., 74.
  const Result<ModelConfig> config = parse(with(R"("num_hidden_layers": 78, "index_topk_freq": 4, "index_skip_topk_offset": 3)"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  for (std::int64_t layer = 0; layer < 78; ++layer) {
    const bool full = layer < 3 || layer % 4 == 2;
    EXPECT_EQ(config->indexer_kinds[static_cast<std::size_t>(layer)], full ? IndexerKind::full : IndexerKind::shared) << layer;
  }
  EXPECT_EQ(std::count(config->indexer_kinds.begin(), config->indexer_kinds.end(), IndexerKind::full), 21);
}

TEST(ModelConfig, EveryFieldIsAccountedFor) {
  const Result<ModelConfig> config =
      parse(with(R"("head_dim": 192, "num_experts": 8, "moe_router_dtype": "float32", "new_field": 1, "other": null)"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(config->head_dim, 0);
  EXPECT_EQ(config->unread_fields, (std::vector<std::string>{"new_field"}));
  ASSERT_EQ(config->ignored.size(), 3u);
  EXPECT_EQ(config->ignored[0].name, "head_dim");
  EXPECT_EQ(config->ignored[0].value, "192");
  EXPECT_EQ(config->ignored[0].note, "MLA heads are qk_nope_head_dim + qk_rope_head_dim wide");
}

TEST(ModelConfig, GroupedQueryAttentionKeepsItsHeadDim) {
  const Result<ModelConfig> config = parse(with(
      R"("model_type": "glm4_moe", "kv_lora_rank": null, "index_topk": null, "head_dim": 128, "partial_rotary_factor": 0.5, "attention_bias": true, "num_key_value_heads": 2)"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_TRUE(config->attention_bias);
  EXPECT_FALSE(config->rope.interleave);
  EXPECT_TRUE(config->indexer_kinds.empty());
}

TEST(ModelConfig, TextConfigHoldsTheLanguageModelOfMultimodalOnes) {
  const Result<ModelConfig> config = parse(R"({"model_type": "kimi_k25", "vision_config": {}, "text_config": )" + with("") + "}");
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(config->model_type, "kimi_k25");
  EXPECT_EQ(config->hidden_size, 64);
  const Result<ModelConfig> wrong = parse(R"({"model_type": "kimi_k25", "text_config": )" + with(R"("vocab_size": "x")") + "}");
  EXPECT_EQ(wrong.error().what,
            "config.json: field 'text_config.vocab_size': expected an integer from 1 to 16777216, found the string \"x\"");
}

TEST(ModelConfig, GenerationConfigWinsForEndTokens) {
  const Result<ModelConfig> config = parse(with(""), R"({"eos_token_id": [5, 6], "temperature": 0.5, "top_k": -1})");
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(config->eos_token_ids, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(setting(*config, "end-of-sequence tokens"), "5, 6 | generation_config.json | config.json says 1; generation_config.json wins");
  EXPECT_EQ(config->generation.temperature, 0.5);
  EXPECT_EQ(config->generation.top_k, 0);
  EXPECT_EQ(setting(*parse(with("")), "end-of-sequence tokens"), "1 | config.json | ");
  EXPECT_EQ(setting(*parse(with(R"("eos_token_id": null)")), "end-of-sequence tokens"), "none | default | ");
}

TEST(GenerationConfig, EachValueHasItsRange) {
  struct Case {
    std::string text, expected;
  };
  const Case cases[] = {
      {R"({"temperature": -1})", "field 'temperature': expected a number of at least 0 and at most 100, found the number -1"},
      {R"({"top_p": 0})", "field 'top_p': expected a number above 0 and at most 1, found the number 0"},
      {R"({"min_p": 1.5})", "field 'min_p': expected a number of at least 0 and at most 1, found the number 1.5"},
      {R"({"top_k": -2})", "field 'top_k': expected an integer from -1 to 2147483647, found the number -2"},
      {R"({"repetition_penalty": 0})", "field 'repetition_penalty': expected a number above 0 and at most 100, found the number 0"},
      {R"({"do_sample": 1})", "field 'do_sample': expected true or false, found the number 1"},
      {R"({"eos_token_id": [1, "2"]})", "field 'eos_token_id[1]': expected an integer from 0 to 2147483647, found the string \"2\""},
      {"3", "expected an object, found the number 3"},
  };
  for (const Case& c : cases) {
    const Result<JsonDocument> document = parse_json(c.text, "g.json");
    const Result<GenerationConfig> config = parse_generation_config(document->root());
    EXPECT_EQ(config ? "parsed" : config.error().what, "g.json: " + c.expected);
  }
}

TEST(ModelConfig, RequireNamesTheMissingField) {
  const Result<ModelConfig> config = parse(with(R"("q_lora_rank": null)"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  constexpr std::array<std::string_view, 2> kFields = {"kv_lora_rank", "q_lora_rank"};
  EXPECT_EQ(require(*config, kFields).error().what, "config.json: field 'q_lora_rank' is missing: glm_moe_dsa models need it");
  EXPECT_TRUE(require(*config, std::span(kFields).first(1)).ok());
}

TEST(ModelConfig, FilesNameThemselves) {
  const ScratchFolder scratch;
  EXPECT_EQ(scratch.shorten(read_model_config(scratch.path()).error().what), "DIR/config.json: cannot open: No such file or directory");
  scratch.write("config.json", with(""));
  EXPECT_TRUE(read_model_config(scratch.path()).ok());
  EXPECT_FALSE(read_generation_config(scratch.path())->temperature.has_value());
  scratch.write("generation_config.json", "{");
  EXPECT_EQ(scratch.shorten(read_model_config(scratch.path()).error().what),
            "DIR/generation_config.json: line 1, column 2: incomplete JSON");
}

TEST(ModelConfig, ReadsTheBundledModels) {
  const Result<ModelConfig> pocket = read_model_config("models/pocket");
  ASSERT_TRUE(pocket.ok()) << pocket.error().what;
  EXPECT_EQ(pocket->model_type, "glm_moe_dsa");
  EXPECT_EQ(pocket->hidden_size, 256);
  EXPECT_EQ(pocket->kv_lora_rank, 512);
  EXPECT_EQ(pocket->index_topk, 256);
  EXPECT_EQ(pocket->rope.theta, 1e6);
  EXPECT_EQ(pocket->num_nextn_predict_layers, 1);
  EXPECT_EQ(pocket->mlp_kinds, (std::vector<MlpKind>{MlpKind::dense, MlpKind::sparse, MlpKind::sparse, MlpKind::sparse}));
  EXPECT_EQ(letters(*pocket), "FFFF");
  EXPECT_EQ(pocket->eos_token_ids, (std::vector<std::int64_t>{4032, 4039, 4041}));
  EXPECT_EQ(pocket->generation.top_p, 0.95);
  EXPECT_EQ(pocket->pad_token_id, 4032);
  EXPECT_FALSE(pocket->bos_token_id.has_value());
  EXPECT_TRUE(pocket->unread_fields.empty()) << pocket->unread_fields.front();
  const Result<ModelConfig> shared = read_model_config("tests/golden/glm_moe_dsa_shared");
  ASSERT_TRUE(shared.ok()) << shared.error().what;
  EXPECT_EQ(letters(*shared), "FFFSSSFS");
  EXPECT_EQ(setting(*shared, "indexer layers"), "4 full, 4 shared | indexer_types | ");
  EXPECT_EQ(shared->rope.theta, 8e6);
  EXPECT_TRUE(read_model_config("tests/golden/glm_moe_dsa").ok());
  EXPECT_TRUE(read_model_config("tests/golden/glm_moe_dsa_real_latent").ok());
}

}  // namespace
}  // namespace reckoner
