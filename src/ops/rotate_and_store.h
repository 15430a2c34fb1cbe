// rotate_and_store: what stands between the projections of MLA and its attention, in one go: rope_heads of the queries, store_latent, and
// with an indexer store_index_key and rope_heads of its queries. Called where a kernel does all of it at once; else the parts are.
#pragma once

#include "ops/rope.h"
#include "ops/store.h"

namespace reckoner {

struct RotateAndStoreArgs {
  static constexpr std::string_view kName = "rotate_and_store";
  static constexpr bool kHasParts = true;
  Tensor cosine;  // [tokens, rope / 2] f32
  Tensor sine;    // [tokens, rope / 2] f32
  TokenPlaces places;

  Tensor q;  // [tokens, heads, head_dim] f32: rotated from element `first` on
  std::int64_t first = 0;
  RopeLayout layout = RopeLayout::interleaved;
  Tensor kv;             // [tokens, latent + rope] f32
  Tensor latent_weight;  // [latent] f32
  float latent_epsilon = 0;
  CacheView latent;  // rows of latent + rope elements

  // Empty tensors: no indexer.
  Tensor index_q;  // [tokens, index_heads, index_dim] f32: rotated from element 0 on
  RopeLayout index_layout = RopeLayout::interleaved;
  Tensor k;         // [tokens, index_dim] f32
  Tensor k_weight;  // [index_dim] f32
  Tensor k_bias;    // [index_dim] f32
  float k_epsilon = 0;
  CacheView index_keys;  // rows of index_dim elements

  Key key() const { return {}; }
  bool has_indexer() const { return index_q.shape.rank() != 0; }

  // The parts.
  RopeHeadsArgs queries() const;
  StoreLatentArgs store_latent() const;
  RopeHeadsArgs index_queries() const;
  StoreIndexKeyArgs store_index_key() const;
};

Status check(const RotateAndStoreArgs& args);
Cost cost(const RotateAndStoreArgs& args);
void reference(const RotateAndStoreArgs& args);

template <ArgsOf<RotateAndStoreArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("cosine", args.cosine);
  v.in("sine", args.sine);
  v.inout("q", args.q);
  v.in("kv", args.kv);
  v.in("latent_weight", args.latent_weight);
  v.inout("index_q", args.index_q);
  v.in("k", args.k);
  v.in("k_weight", args.k_weight);
  v.in("k_bias", args.k_bias);
  v.places(args.places);
  v.cache_out("latent", args.latent);
  if (args.has_indexer()) v.cache_out("index_keys", args.index_keys);
}

}  // namespace reckoner
