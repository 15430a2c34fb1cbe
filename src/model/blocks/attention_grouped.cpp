#include "model/blocks/blocks.h"
#include "model/rope.h"

namespace reckoner {
namespace {

// x w^T + bias: [tokens, w.rows]
Tensor projected(Forward& f, const Tensor& x, const Weight& w, const Tensor& bias) {
  const Tensor y = f.linear(x, w);
  if (bias.shape.rank() != 0) f.ops(AddBiasArgs{.x = y, .bias = bias});
  return y;
}

// Normalises each head of x [tokens, heads * head_dim], if the model does, and rotates the first dimensions of each. In place.
Tensor normalised_and_rotated(Forward& f, const Tensor& x, const Tensor& norm) {
  const ModelConfig& c = f.config;
  const std::int64_t heads = x.dim(1) / c.head_dim;
  const Tensor rows = x.reshaped({f.tokens() * heads, c.head_dim});
  if (norm.shape.rank() != 0) {
    const auto epsilon = static_cast<float>(c.rms_norm_eps);
    f.ops(RmsNormArgs{.x = rows, .add = {}, .weight = norm, .epsilon = epsilon, .y = rows, .guard = {}});
  }
  const Tensor by_head = x.reshaped({f.tokens(), heads, c.head_dim});
  f.ops(RopeHeadsArgs{.x = by_head, .first = 0, .layout = RopeLayout::half_split, .cosine = f.cosine, .sine = f.sine});
  return by_head;
}

}  // namespace

Tensor grouped_attention(Forward& f, const LayerWeights& layer_weights, std::int64_t layer, const Tensor& x) {
  const ModelConfig& c = f.config;
  const GroupedQueryWeights& w = layer_weights.grouped;
  const std::int64_t width = c.num_attention_heads * c.head_dim;
  const CacheView& keys = f.cache.keys[static_cast<std::size_t>(layer)];
  const CacheView& values = f.cache.values[static_cast<std::size_t>(layer)];
  const Tensor y = f.scratch.f32({f.tokens(), c.hidden_size});
  const Arena::Scope scope(f.scratch);

  const Tensor k = projected(f, x, w.k, w.k_bias);  // [tokens, kv_heads * head_dim]
  normalised_and_rotated(f, k, w.k_norm);
  f.ops(StoreRowsArgs{.x = k, .places = f.batch.places, .cache = keys});
  const Tensor v = projected(f, x, w.v, w.v_bias);  // [tokens, kv_heads * head_dim]
  f.ops(StoreRowsArgs{.x = v, .places = f.batch.places, .cache = values});

  const Tensor q = normalised_and_rotated(f, projected(f, x, w.q, w.q_bias), w.q_norm);  // [tokens, heads, head_dim]
  const Tensor attended = f.scratch.f32({f.tokens(), c.num_attention_heads, c.head_dim});
  f.ops(AttendGroupedArgs{.q = q,
                          .places = f.batch.places,
                          .keys = keys,
                          .values = values,
                          .kv_heads = c.num_key_value_heads,
                          .scale = attention_scale(c),
                          .max_context = f.max_context,
                          .y = attended});
  f.ops(LinearArgs{.x = attended.reshaped({f.tokens(), width}), .w = w.o, .y = y, .precision = f.precision});
  return y;
}

}  // namespace reckoner
