#include <algorithm>
#include <cmath>
#include <vector>

#include "model/blocks/blocks.h"
#include "model/rope.h"

namespace reckoner {
namespace {

// The layer norms inside MLA are built without an epsilon of their own in the published code, which means 1e-6, not rms_norm_eps.
constexpr float kLatentNormEpsilon = 1e-6f;
constexpr float kKeyNormEpsilon = 1e-6f;  // likewise, of the indexer's LayerNorm

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

// The input of some linear layers: x, or its norm.
struct LinearInput {
  Tensor x;
  Tensor norm = {};  // its weight, or empty; then x is normalised in place where no kernel does it on the way
};

// Linear layers of one input: in one go where there is a kernel for that, and their weights have one format.
void linear_parts(Forward& f, const LinearInput& input, const std::vector<LinearPart>& parts) {
  LinearGroupArgs group{
      .x = input.x, .norm = input.norm, .epsilon = kLatentNormEpsilon, .count = static_cast<int>(parts.size()), .parts = {}};
  std::copy(parts.begin(), parts.end(), group.parts.begin());
  const auto is_like_first = [&](const LinearPart& part) { return part.w.format == parts.front().w.format; };
  const bool is_few = f.tokens() <= LinearGroupArgs::kMostTokens && std::all_of(parts.begin(), parts.end(), is_like_first);
  if (is_few && f.ops.serves<LinearGroupArgs>(group.key())) return f.ops(group);
  if (input.norm.shape.rank() != 0) f.ops(norm_of(group, input.x));
  for (int part = 0; part < group.count; ++part) f.ops(linear_of(group, part, input.x));
}

// What the lightning indexer is made of, from the same layers' inputs as attention's own.
struct IndexerRows {
  Tensor key;           // [tokens, index_dim]
  Tensor head_weights;  // [tokens, index_heads]
  Tensor q;             // [tokens, index_heads * index_dim]
};

// Rotates queries and stores what the cache keeps of these tokens: in one go where there is a kernel for that.
void rotate_and_store(Forward& f, const RotateAndStoreArgs& args) {
  if (f.ops.serves<RotateAndStoreArgs>(args.key())) return f.ops(args);
  f.ops(args.queries());
  f.ops(args.store_latent());
  if (!args.has_indexer()) return;
  f.enter("indexer");
  f.ops(args.store_index_key());
  f.ops(args.index_queries());
  f.enter("attention");
}

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

  const bool indexes = selection != nullptr && c.indexer_kinds[static_cast<std::size_t>(layer)] == IndexerKind::full;
  const IndexerWeights& own_indexer = layer_weights.indexer;
  const Tensor query_latent = f.scratch.f32({tokens, w.q_a.rows});  // [tokens, q_lora]
  const Tensor kv = f.scratch.f32({tokens, w.kv_a.rows});           // [tokens, latent + rope]
  const Tensor all_q = f.scratch.f32({tokens, w.q_b.rows});
  std::vector<LinearPart> of_x = {{.w = w.q_a, .y = query_latent, .precision = f.precision},
                                  {.w = w.kv_a, .y = kv, .precision = f.precision}};
  std::vector<LinearPart> of_latent = {{.w = w.q_b, .y = all_q, .precision = f.precision}};
  IndexerRows index_rows;
  if (indexes) {
    index_rows = {.key = f.scratch.f32({tokens, own_indexer.wk.rows}),
                  .head_weights = f.scratch.f32({tokens, own_indexer.weights_proj.rows}),
                  .q = f.scratch.f32({tokens, own_indexer.wq_b.rows})};
    of_x.push_back({.w = own_indexer.wk, .y = index_rows.key, .precision = f.precision});
    // How much each head counts decides which tokens are seen at all: always in float.
    of_x.push_back({.w = own_indexer.weights_proj, .y = index_rows.head_weights, .precision = Precision::exact});
    of_latent.push_back({.w = own_indexer.wq_b, .y = index_rows.q, .precision = f.precision});
  }
  linear_parts(f, {.x = x}, of_x);
  linear_parts(f, {.x = query_latent, .norm = w.q_a_norm}, of_latent);
  const Tensor q = all_q.reshaped({tokens, heads, head_dim});
  RotateAndStoreArgs rotated{.cosine = f.cosine,
                             .sine = f.sine,
                             .places = f.batch.places,
                             .q = q,
                             .first = c.qk_nope_head_dim,
                             .layout = layout(c.rope.interleave),
                             .kv = kv,
                             .latent_weight = w.kv_a_norm,
                             .latent_epsilon = kLatentNormEpsilon,
                             .latent = cache};
  if (indexes) {
    rotated.index_q = index_rows.q.reshaped({tokens, c.index_n_heads, c.index_head_dim});
    rotated.index_layout = layout(c.rope.indexer_interleave);
    rotated.k = index_rows.key;
    rotated.k_weight = own_indexer.k_norm;
    rotated.k_bias = own_indexer.k_norm_bias;
    rotated.k_epsilon = kKeyNormEpsilon;
    rotated.index_keys = f.cache.index_keys[static_cast<std::size_t>(layer)];
  }
  rotate_and_store(f, rotated);
  if (indexes) {
    f.enter("indexer");
    f.ops(IndexSelectArgs{.q = rotated.index_q,
                          .weights = index_rows.head_weights,
                          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.index_n_heads * c.index_head_dim))),
                          .places = f.batch.places,
                          .keys = rotated.index_keys,
                          .max_context = f.max_context,
                          .selection = *selection});
    f.enter("attention");
  }

  const Tensor values = f.scratch.f32({tokens, heads, c.v_head_dim});
  for (std::int64_t first = 0; first < tokens; first += kAttentionRows) {
    attend(f, w, cache, rows_of(f, q, selection, values, first, std::min(kAttentionRows, tokens - first)));
  }
  f.ops(LinearArgs{.x = values.reshaped({tokens, heads * c.v_head_dim}), .w = w.o, .y = y, .precision = f.precision});
  return y;
}

}  // namespace reckoner
