#include <algorithm>
#include <cmath>

#include "model/blocks/blocks.h"
#include "model/rope.h"

namespace reckoner {
namespace {

// The layer norms inside MLA are built without an epsilon of their own in the published code, which means 1e-6, not rms_norm_eps.
constexpr float kLatentNormEpsilon = 1e-6f;

// Tokens whose absorbed queries and attended latents are in memory at a time. These are the widest tensors of a layer by far (a GLM-5
// token takes 280 kB), and every token needs the cache only, not each other.
constexpr std::int64_t kAttentionRows = 128;

RopeLayout layout(bool interleaved) { return interleaved ? RopeLayout::interleaved : RopeLayout::half_split; }

// Some rows of a step on their way through attention.
struct AttentionRows {
  Tensor q;  // [rows, heads, nope + rope], rotated
  TokenPlaces places;
  Selection selection;
  Tensor values;  // [rows, heads, v]: the result
};

AttentionRows rows_of(const Forward& f, const Tensor& q, const Selection* selection, const Tensor& values, std::int64_t first,
                      std::int64_t rows) {
  AttentionRows part{.q = q.rows(first, rows), .places = f.batch.places, .selection = {}, .values = values.rows(first, rows)};
  part.places.positions = part.places.positions.rows(first, rows);
  if (part.places.table.shape.rank() != 0) part.places.table = part.places.table.rows(first, rows);
  if (!part.places.pages.empty())
    part.places.pages = part.places.pages.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
  if (selection != nullptr)
    part.selection = {.counts = selection->counts.rows(first, rows), .positions = selection->positions.rows(first, rows)};
  return part;
}

// values = W_UV softmax(scale * (q W_UK) cache) cache
void attend(Forward& f, const MlaWeights& w, const CacheView& cache, const AttentionRows& part) {
  const ModelConfig& c = f.config;
  const Arena::Scope scope(f.scratch);
  const std::int64_t rows = part.q.dim(0);
  const std::int64_t heads = c.num_attention_heads;
  const Tensor absorbed = f.scratch.f32({rows, heads, c.kv_lora_rank + c.qk_rope_head_dim});
  f.ops(LatentQueryArgs{.q = part.q, .kv_b = w.kv_b, .nope = c.qk_nope_head_dim, .y = absorbed, .precision = f.precision});
  const Tensor attended = f.scratch.f32({rows, heads, c.kv_lora_rank});
  f.ops(AttendLatentArgs{.q = absorbed,
                         .places = part.places,
                         .cache = cache,
                         .selection = part.selection,
                         .scale = attention_scale(c),
                         .max_context = f.max_context,
                         .y = attended});
  f.ops(LatentValueArgs{.x = attended, .kv_b = w.kv_b, .nope = c.qk_nope_head_dim, .y = part.values, .precision = f.precision});
}

// With an indexer its parts come along, once its projections are there.
bool rotates_at_once(const Forward& f) { return f.ops.serves<RotateAndStoreArgs>({}); }

}  // namespace

Tensor mla_attention(Forward& f, const LayerWeights& layer_weights, std::int64_t layer, const Tensor& x, Selection* selection) {
  const ModelConfig& c = f.config;
  const MlaWeights& w = layer_weights.attention;
  const std::int64_t tokens = f.tokens();
  const std::int64_t heads = c.num_attention_heads;
  const std::int64_t head_dim = c.qk_nope_head_dim + c.qk_rope_head_dim;
  const CacheView& cache = f.cache.latent[static_cast<std::size_t>(layer)];
  const Tensor y = f.scratch.f32({tokens, c.hidden_size});
  const Arena::Scope scope(f.scratch);

  const Tensor query_latent = f.linear(x, w.q_a);  // [tokens, q_lora]
  f.ops(RmsNormArgs{.x = query_latent, .add = {}, .weight = w.q_a_norm, .epsilon = kLatentNormEpsilon, .y = query_latent, .guard = {}});
  const Tensor q = f.linear(query_latent, w.q_b).reshaped({tokens, heads, head_dim});
  const Tensor kv = f.linear(x, w.kv_a);  // [tokens, latent + rope]
  const RotateAndStoreArgs rotated{.cosine = f.cosine,
                                   .sine = f.sine,
                                   .places = f.batch.places,
                                   .q = q,
                                   .first = c.qk_nope_head_dim,
                                   .layout = layout(c.rope.interleave),
                                   .kv = kv,
                                   .latent_weight = w.kv_a_norm,
                                   .latent_epsilon = kLatentNormEpsilon,
                                   .latent = cache};
  const bool at_once = rotates_at_once(f);
  if (!at_once) {
    f.ops(rotated.queries());
    f.ops(rotated.store_latent());
  }
  if (selection != nullptr && c.indexer_kinds[static_cast<std::size_t>(layer)] == IndexerKind::full) {
    f.enter("indexer");
    indexer(f, layer_weights.indexer, f.cache.index_keys[static_cast<std::size_t>(layer)], x, query_latent, rotated, *selection);
    f.enter("attention");
  } else if (at_once) {
    f.ops(rotated);
  }

  const Tensor values = f.scratch.f32({tokens, heads, c.v_head_dim});
  for (std::int64_t first = 0; first < tokens; first += kAttentionRows) {
    attend(f, w, cache, rows_of(f, q, selection, values, first, std::min(kAttentionRows, tokens - first)));
  }
  f.ops(LinearArgs{.x = values.reshaped({tokens, heads * c.v_head_dim}), .w = w.o, .y = y, .precision = f.precision});
  return y;
}

void indexer(Forward& f, const IndexerWeights& w, const CacheView& keys, const Tensor& x, const Tensor& query_latent,
             RotateAndStoreArgs rotated, Selection& selection) {
  const ModelConfig& c = f.config;
  constexpr float kKeyNormEpsilon = 1e-6f;  // of torch's LayerNorm as the published code builds it, not rms_norm_eps
  const Arena::Scope scope(f.scratch);

  const Tensor key = f.linear(x, w.wk);  // [tokens, index_dim]
  const Tensor q = f.linear(query_latent, w.wq_b).reshaped({f.tokens(), c.index_n_heads, c.index_head_dim});
  rotated.index_q = q;
  rotated.index_layout = layout(c.rope.indexer_interleave);
  rotated.k = key;
  rotated.k_weight = w.k_norm;
  rotated.k_bias = w.k_norm_bias;
  rotated.k_epsilon = kKeyNormEpsilon;
  rotated.index_keys = keys;
  if (rotates_at_once(f)) {
    f.ops(rotated);
  } else {
    f.ops(rotated.store_index_key());
    f.ops(rotated.index_queries());
  }
  // How much each head counts decides which tokens are seen at all: always in float.
  const Tensor head_weights = f.linear(x, w.weights_proj, Precision::exact);  // [tokens, index_heads]
  f.ops(IndexSelectArgs{.q = q,
                        .weights = head_weights,
                        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.index_n_heads * c.index_head_dim))),
                        .places = f.batch.places,
                        .keys = keys,
                        .max_context = f.max_context,
                        .selection = selection});
}

}  // namespace reckoner
