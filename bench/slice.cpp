#include "slice.h"

#include <cstring>
#include <numeric>

#include "quant/format.h"

namespace reckoner {
namespace {

constexpr std::string_view kConfig = R"({
  "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288,
  "num_hidden_layers": 2, "mlp_layer_types": ["sparse", "sparse"], "num_attention_heads": 64, "num_key_value_heads": 64,
  "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
  "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "n_routed_experts": 32, "num_experts_per_tok": 8,
  "n_shared_experts": 1, "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "rms_norm_eps": 1e-5, "vocab_size": 4096,
  "max_position_embeddings": 202752, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "eos_token_id": 0
})";

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Random bits made into harmless values: BF16 and F32 of magnitude 2^-7 to 2^-5 and either sign, E4M3 scales from 0.5 to 2.
std::uint64_t value_bits(DType dtype, std::uint64_t random) {
  switch (dtype) {
    case DType::bf16:
      return (random & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
    case DType::f32:
      return (random & 0x80ffffff80ffffffu) | 0x3c0000003c000000u;
    case DType::f8_e4m3:
      return (random & 0x0707070707070707u) | 0x3838383838383838u;
    default:
      return random;
  }
}

void fill_random(const Tensor& tensor, ThreadPool& pool) {
  const std::int64_t words = (tensor.bytes() + 7) / 8;
  constexpr std::int64_t kPiece = 1 << 16;
  pool.parallel_for((words + kPiece - 1) / kPiece, [&](std::int64_t piece, int) {
    for (std::int64_t word = piece * kPiece; word < std::min(words, (piece + 1) * kPiece); ++word) {
      const std::uint64_t bits =
          value_bits(tensor.dtype, mixed(static_cast<std::uint64_t>(word) * 0x9e3779b97f4a7c15u + tensor.shape.elements()));
      std::memcpy(tensor.data + word * 8, &bits, std::min<std::size_t>(8, static_cast<std::size_t>(tensor.bytes() - word * 8)));
    }
  });
}

ModelConfig slice_config() {
  const auto document = parse_json(kConfig, "slice");
  CHECK(document.ok(), document.ok() ? "" : document.error().what);
  auto config = parse_model_config(document->root(), std::nullopt);
  CHECK(config.ok(), config.ok() ? "" : config.error().what);
  return std::move(config).value();
}

}  // namespace

MadeUpWeights::MadeUpWeights(const Family& family, const ModelConfig& config, ThreadPool& pool) {
  for_each_rule(family, config, [&](const WeightRule& rule) {
    const Shape shape = rule.shape(config);
    for_each_place(rule, config, [&](WeightPlace place) {
      const std::string name = published_name(family, rule, place);
      if (rule.matrix == nullptr) return add(name, DType::f32, shape);
      if (rule.repeat != Repeat::expert) return add(name + ".weight", DType::bf16, shape);
      add(name + ".weight", DType::u8, {shape[0], shape[1] / 2});
      add(name + ".weight_scale", DType::f8_e4m3, {shape[0], shape[1] / 16});
      add(name + ".weight_scale_2", DType::f32, {});
    });
  });
  fill(pool);
}

void MadeUpWeights::add(const std::string& name, DType dtype, const Shape& shape) {
  buffers_.emplace_back(shape.elements() * size_bytes(dtype));
  tensors_[name] = buffers_.back().tensor(dtype, shape);
}

void MadeUpWeights::fill(ThreadPool& pool) {
  for (const auto& [name, tensor] : tensors_) {
    fill_random(tensor, pool);
    if (name.ends_with("weight_scale_2")) *tensor.f32() = 0.005f;
  }
}

const Tensor* MadeUpWeights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Slice::Slice(ThreadPool& pool, const Catalogue& catalogue, const DeviceInfo& device, Precision precision, std::int64_t max_context) {
  model_.config = slice_config();
  model_.family = *find_family(model_.config);
  source_ = std::make_unique<MadeUpWeights>(*model_.family, model_.config, pool);
  auto weights = place_weights(*model_.family, model_.config, *source_);
  CHECK(weights.ok(), weights.ok() ? "" : weights.error().what);
  model_.weights = std::move(weights).value();
  for_each_rule(*model_.family, model_.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model_.config,
                   [&](WeightPlace place) { weight_bytes_ += reckoner::weight_bytes(rule.matrix(model_.weights, place)); });
  });
  const StepLimits limits{.max_tokens = kChunk, .max_samples = 1, .max_context = max_context};
  runner_ = std::make_unique<StepRunner>(model_, catalogue, device, pool, precision, limits);
  cache_ = std::make_unique<KvPool>(runner_->cache_layout(), KvPool::pages_for(max_context));
  const CacheView& view = cache_->layout().latent.front();
  fill_random({.data = view.base, .dtype = view.dtype, .shape = {cache_bytes() / size_bytes(view.dtype)}}, pool);
  pages_ = *cache_->allocate(cache_->pages());
  runner_->use_cache(cache_->layout());
}

void Slice::step(std::int64_t tokens, std::int64_t context) {
  builder_.clear();
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t position = context - tokens + i;
    builder_.add(static_cast<std::int32_t>(mixed(static_cast<std::uint64_t>(position)) % 4096), position, pages_,
                 i + 1 == tokens ? Sample::yes : Sample::no);
  }
  runner_->run(builder_.batch());
}

void Slice::run(std::int64_t tokens, std::int64_t context) {
  for (std::int64_t done = 0; done < tokens; done += kChunk) {
    const std::int64_t rows = std::min(kChunk, tokens - done);
    step(rows, context - tokens + done + rows);
  }
}

Cost Slice::cost(std::int64_t tokens, std::int64_t context) {
  Cost total;
  for (const Ops::Call& call : calls(tokens, context)) total += call.cost;
  return total;
}

std::vector<Ops::Call> Slice::calls(std::int64_t tokens, std::int64_t context) {
  std::vector<Ops::Call> all;
  for (std::int64_t done = 0; done < tokens; done += kChunk) {
    const std::int64_t rows = std::min(kChunk, tokens - done);
    for (const Ops::Call& call : runner_->plan(rows, context - tokens + done + rows)) all.push_back(call);
  }
  return all;
}

}  // namespace reckoner
