#include "formats/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "formats/config_reader.h"
#include "formats/remedy.h"

namespace reckoner {
namespace {

constexpr std::int64_t kMaxMtpLayers = 16;

struct IgnoredField {
  std::string_view key;
  std::string_view reason;
};
// Fields that are known and not used, whatever they say.
constexpr std::array kIgnoredFields = {
    IgnoredField{"num_experts", "n_routed_experts counts; it is the same number under another name"},
    IgnoredField{"layer_types", "the attention of every layer follows from the indexer fields"},
    IgnoredField{"moe_router_dtype", "the router always computes in float32"},
    IgnoredField{"dtype", "each tensor's own dtype counts"},
    IgnoredField{"torch_dtype", "each tensor's own dtype counts"},
    IgnoredField{"ep_size", "how experts are distributed is decided when serving"},
    IgnoredField{"pretraining_tp", "has no effect on inference"},
    IgnoredField{"attention_dropout", "has no effect on inference"},
    IgnoredField{"initializer_range", "has no effect on inference"},
    IgnoredField{"aux_loss_alpha", "has no effect on inference"},
    IgnoredField{"seq_aux", "has no effect on inference"},
    IgnoredField{"router_aux_loss_coef", "has no effect on inference"},
    IgnoredField{"use_cache", "there is always a KV cache"},
    IgnoredField{"transformers_version", "both spellings of its fields are read"},
};

// Error unless a string field, if present, has the only supported value.
Status require_value(ConfigReader& reader, std::string_view key, std::string_view supported) {
  const std::optional<JsonNode> node = TRY(reader.field(key));
  if (!node || TRY(node->as_string()) == supported) return {};
  return node->unexpected(fmt::format("\"{}\", the only one supported", supported));
}

// Error unless every one of these fields is present; `because` says what needs them.
Status require_fields(ConfigReader& reader, std::initializer_list<std::string_view> keys, std::string_view because) {
  for (const std::string_view key : keys) {
    if (!TRY(reader.field(key)))
      return reader.object().error(fmt::format("field '{}' is missing: {}", key, because), "add the field, or download the file again");
  }
  return {};
}

Status read_identity(ConfigReader& top, ConfigReader& reader, ModelConfig& config) {
  const JsonNode model_type = TRY(top.required("model_type"));
  config.model_type = TRY(model_type.as_string());
  static_cast<void>(TRY(reader.field("model_type")));  // a nested text model has its own
  static_cast<void>(TRY(reader.field("architectures")));
  if (const std::optional<JsonNode> list = TRY(top.field("architectures"))) {
    for (const JsonNode& element : TRY(list->as_array())) config.architectures.push_back(TRY(element.as_string()));
  }
  return {};
}

Status read_sizes(ConfigReader& reader, ModelConfig& config) {
  TRY(require_fields(reader,
                     {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "rms_norm_eps", "max_position_embeddings"},
                     "every model needs it"));
  TRY(reader.read("hidden_size", config.hidden_size, 1, kMaxDim));
  TRY(reader.read("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers));
  TRY(reader.read("vocab_size", config.vocab_size, 1, kMaxDim));
  TRY(reader.read("intermediate_size", config.intermediate_size, 1, kMaxDim));
  TRY(reader.read("max_position_embeddings", config.max_position_embeddings, 1, kMaxTokens));
  TRY(reader.read_positive("rms_norm_eps", config.rms_norm_eps, 1));
  TRY(reader.read("tie_word_embeddings", config.tie_word_embeddings));
  TRY(reader.read("num_nextn_predict_layers", config.num_nextn_predict_layers, 0, kMaxMtpLayers));
  config.settings.push_back({"longest context", fmt::format("{} tokens", config.max_position_embeddings), "max_position_embeddings", ""});
  return require_value(reader, "hidden_act", "silu");
}

Status read_head_counts(ConfigReader& reader, ModelConfig& config) {
  TRY(reader.read("num_attention_heads", config.num_attention_heads, 1, kMaxDim));
  config.num_key_value_heads = config.num_attention_heads;
  TRY(reader.read("num_key_value_heads", config.num_key_value_heads, 1, config.num_attention_heads));
  if (config.num_attention_heads % config.num_key_value_heads == 0) return {};
  return reader.object().error(fmt::format("num_attention_heads ({}) is no multiple of num_key_value_heads ({})",
                                           config.num_attention_heads, config.num_key_value_heads));
}

Status read_mla(ConfigReader& reader, ModelConfig& config) {
  TRY(reader.read("q_lora_rank", config.q_lora_rank, 1, kMaxDim));
  TRY(reader.read("kv_lora_rank", config.kv_lora_rank, 1, kMaxDim));
  TRY(reader.read("qk_nope_head_dim", config.qk_nope_head_dim, 1, kMaxDim));
  TRY(reader.read("qk_rope_head_dim", config.qk_rope_head_dim, 2, kMaxDim));
  TRY(reader.read("v_head_dim", config.v_head_dim, 1, kMaxDim));
  const JsonNode& object = reader.object();
  if (config.qk_rope_head_dim % 2 != 0)
    return object.error(fmt::format("field 'qk_rope_head_dim': expected an even number, found {}", config.qk_rope_head_dim));
  std::int64_t total = config.qk_nope_head_dim + config.qk_rope_head_dim;
  const std::int64_t parts = total;
  TRY(reader.read("qk_head_dim", total, 1, 2 * kMaxDim));
  if (config.is_mla() && total != parts)
    return object.error(fmt::format("field 'qk_head_dim': expected qk_nope_head_dim + qk_rope_head_dim = {}, found {}", parts, total));
  return {};
}

Status read_attention(ConfigReader& reader, ModelConfig& config) {
  TRY(read_head_counts(reader, config));
  TRY(read_mla(reader, config));
  TRY(reader.read("attention_bias", config.attention_bias));
  TRY(reader.read("use_qk_norm", config.use_qk_norm));
  if (config.is_mla() && config.attention_bias)
    return reader.object().error("field 'attention_bias': expected false, the only value supported with MLA, found true");
  const std::optional<JsonNode> head_dim = TRY(reader.field("head_dim"));
  if (!head_dim) return {};
  const std::int64_t value = TRY(head_dim->as_int64(1, kMaxDim));
  if (!config.is_mla()) config.head_dim = value;
  if (config.is_mla())
    config.ignored.push_back({"head_dim", fmt::format("{}", value), "head_dim", "MLA heads are qk_nope_head_dim + qk_rope_head_dim wide"});
  return {};
}

Status read_indexer(ConfigReader& reader, ModelConfig& config) {
  TRY(reader.read("index_topk", config.index_topk, 1, kMaxTokens));
  TRY(reader.read("index_n_heads", config.index_n_heads, 1, kMaxDim));
  TRY(reader.read("index_head_dim", config.index_head_dim, 1, kMaxDim));
  TRY(reader.read("index_share_for_mtp_iteration", config.index_share_for_mtp_iteration));
  if (!config.is_sparse_attention()) return {};
  TRY(require_fields(reader, {"index_n_heads", "index_head_dim"}, "index_topk asks for sparse attention"));
  if (config.index_head_dim >= config.qk_rope_head_dim) return {};
  return reader.object().error(fmt::format("field 'index_head_dim': expected at least qk_rope_head_dim = {}, found {}",
                                           config.qk_rope_head_dim, config.index_head_dim));
}

Status check_experts(const JsonNode& object, const ModelConfig& config) {
  const std::int64_t experts = config.n_routed_experts;
  if (config.topk_group > config.n_group)
    return object.error(fmt::format("field 'topk_group': expected at most n_group = {}, found {}", config.n_group, config.topk_group));
  if (experts % config.n_group != 0)
    return object.error(fmt::format("field 'n_group': expected a divisor of n_routed_experts = {}, found {}", experts, config.n_group));
  const std::int64_t group = experts / config.n_group;
  if (config.n_group > 1 && group < 2)  // a group is scored by its two best experts
    return object.error(
        fmt::format("field 'n_group': expected at least 2 experts a group, found {} experts in {} groups", experts, config.n_group));
  if (config.num_experts_per_tok > group * config.topk_group)
    return object.error(fmt::format("field 'num_experts_per_tok': expected at most {}, the experts in topk_group = {} groups, found {}",
                                    group * config.topk_group, config.topk_group, config.num_experts_per_tok));
  return {};
}

Status read_experts(ConfigReader& reader, ModelConfig& config) {
  TRY(reader.read("n_routed_experts", config.n_routed_experts, 1, kMaxDim));
  TRY(reader.read("num_experts_per_tok", config.num_experts_per_tok, 1, kMaxDim));
  TRY(reader.read("n_shared_experts", config.n_shared_experts, 0, kMaxDim));
  TRY(reader.read("moe_intermediate_size", config.moe_intermediate_size, 1, kMaxDim));
  TRY(reader.read("n_group", config.n_group, 1, kMaxDim));
  TRY(reader.read("topk_group", config.topk_group, 1, kMaxDim));
  TRY(reader.read("norm_topk_prob", config.norm_topk_prob));
  TRY(reader.read_positive("routed_scaling_factor", config.routed_scaling_factor, 1e6));
  TRY(require_value(reader, "scoring_func", config.scoring_func));
  TRY(require_value(reader, "topk_method", config.topk_method));
  if (!config.is_moe()) return {};
  TRY(require_fields(reader, {"num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "routed_scaling_factor"},
                     "n_routed_experts asks for a mixture of experts"));
  return check_experts(reader.object(), config);
}

Status check_mlp_sizes(ConfigReader& reader, const ModelConfig& config) {
  const auto has = [&](MlpKind kind) {
    return std::find(config.mlp_kinds.begin(), config.mlp_kinds.end(), kind) != config.mlp_kinds.end();
  };
  if (has(MlpKind::dense)) TRY(require_fields(reader, {"intermediate_size"}, "some layers are dense"));
  if (has(MlpKind::sparse)) TRY(require_fields(reader, {"n_routed_experts"}, "some layers are sparse"));
  return {};
}

std::string ids_text(const std::vector<std::int64_t>& ids) { return ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, ", ")); }

Status read_special_tokens(ConfigReader& reader, const std::optional<JsonNode>& generation_config, ModelConfig& config) {
  const auto optional_id = [&](std::string_view key, std::optional<std::int64_t>& id) -> Status {
    std::int64_t value = -1;  // some files write "none" so
    TRY(reader.read(key, value, -1, config.vocab_size - 1));
    if (value >= 0) id = value;
    return {};
  };
  TRY(optional_id("bos_token_id", config.bos_token_id));
  TRY(optional_id("pad_token_id", config.pad_token_id));
  static_cast<void>(TRY(reader.field("eos_token_id")));
  const std::vector<std::int64_t> own = TRY(read_token_ids(reader.object(), "eos_token_id"));
  const std::vector<std::int64_t>& generation = config.generation.eos_token_ids;
  const bool overruled = !generation.empty() && !own.empty() && generation != own;
  config.eos_token_ids = generation.empty() ? own : generation;
  config.settings.push_back({"end-of-sequence tokens", ids_text(config.eos_token_ids),
                             !generation.empty() ? "generation_config.json"
                             : own.empty()       ? "default"
                                                 : "config.json",
                             overruled ? fmt::format("config.json says {}; generation_config.json wins", ids_text(own)) : ""});
  for (const std::int64_t id : config.eos_token_ids) {
    if (id < config.vocab_size) continue;
    const JsonNode& source = generation.empty() ? reader.object() : *generation_config;
    return source.error(fmt::format("field 'eos_token_id': expected ids below vocab_size = {}, found {}", config.vocab_size, id),
                        "check that the file belongs to this model, or download it again");
  }
  return {};
}

// Every field of the file is accounted for: read, ignored for a reason, or unread.
Status account_for_fields(const ConfigReader& reader, ModelConfig& config) {
  for (const auto& [name, node] : TRY(reader.object().as_object())) {
    if (node.is_null()) continue;
    const std::string& key = name;
    config.given_fields.push_back(key);
    if (reader.read_keys().contains(key)) continue;
    const auto* known =
        std::find_if(kIgnoredFields.begin(), kIgnoredFields.end(), [&](const IgnoredField& field) { return field.key == key; });
    if (known == kIgnoredFields.end()) {
      config.unread_fields.push_back(key);
    } else {
      config.ignored.push_back({key, node.describe(), key, std::string(known->reason)});
    }
  }
  std::sort(config.given_fields.begin(), config.given_fields.end());
  std::sort(config.unread_fields.begin(), config.unread_fields.end());
  return {};
}

// Multimodal models keep the language model's fields in `text_config`.
Result<JsonNode> text_model(const JsonNode& root) {
  const std::optional<JsonNode> text = TRY(root.optional("text_config"));
  if (!text) return root;
  if (TRY(root.optional("hidden_size"))) return root;
  return *text;
}

}  // namespace

Result<ModelConfig> parse_model_config(const JsonNode& root, const std::optional<JsonNode>& generation_config) {
  ModelConfig config;
  config.where = root.where();
  if (generation_config) config.generation = TRY(parse_generation_config(*generation_config));
  ConfigReader top(root);
  ConfigReader reader(TRY(text_model(root)));
  TRY(read_identity(top, reader, config));
  TRY(read_sizes(reader, config));
  TRY(read_attention(reader, config));
  TRY(read_indexer(reader, config));
  TRY(read_experts(reader, config));
  TRY(read_rope(reader, config));
  TRY(read_layer_kinds(reader, config));
  TRY(check_mlp_sizes(reader, config));
  TRY(read_special_tokens(reader, generation_config, config));
  static_cast<void>(TRY(reader.field("quantization_config")));  // read by quant_metadata
  TRY(account_for_fields(reader, config));
  return config;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  const JsonDocument config = TRY(read_json_file(folder / "config.json"));
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return with_remedy(parse_model_config(config.root(), std::nullopt), kCorrectFile);
  const JsonDocument generation_config = TRY(read_json_file(path));
  return with_remedy(parse_model_config(config.root(), generation_config.root()), kCorrectFile);
}

Status require(const ModelConfig& config, std::span<const std::string_view> fields) {
  for (const std::string_view field : fields) {
    if (!std::binary_search(config.given_fields.begin(), config.given_fields.end(), field))
      return Error{fmt::format("{}: field '{}' is missing: {} models need it", config.where, field, config.model_type),
                   "add the field, or download the file again"};
  }
  return {};
}

}  // namespace reckoner
