// store_latent, store_index_key and store_rows: what a layer keeps of a token, written into its cache row.
#pragma once

#include "ops/op.h"
#include "ops/pages.h"
#include "ops/rope.h"

namespace reckoner {

// cache row = [ rms_norm(kv[:latent]) , rotate(kv[latent:]) ], always interleaved (MLA).
struct StoreLatentArgs {
  static constexpr std::string_view kName = "store_latent";
  Tensor kv;      // [tokens, latent + rope] f32
  Tensor weight;  // [latent] f32
  float epsilon = 0;
  RopeLayout layout = RopeLayout::interleaved;
  Tensor cosine;  // [tokens, rope / 2] f32
  Tensor sine;    // [tokens, rope / 2] f32
  TokenPlaces places;
  CacheView cache;  // rows of latent + rope elements

  Key key() const { return {}; }
};

// cache row = layer_norm(k) * weight + bias, its first 2 * pairs elements rotated (the lightning indexer's key).
struct StoreIndexKeyArgs {
  static constexpr std::string_view kName = "store_index_key";
  Tensor k;       // [tokens, index_dim] f32
  Tensor weight;  // [index_dim] f32
  Tensor bias;    // [index_dim] f32
  float epsilon = 0;
  RopeLayout layout = RopeLayout::interleaved;
  Tensor cosine;  // [tokens, rope / 2] f32
  Tensor sine;    // [tokens, rope / 2] f32
  TokenPlaces places;
  CacheView cache;  // rows of index_dim elements

  Key key() const { return {}; }
};

// cache row = x (the keys, or the values, of all heads).
struct StoreRowsArgs {
  static constexpr std::string_view kName = "store_rows";
  Tensor x;  // [tokens, width] f32
  TokenPlaces places;
  CacheView cache;  // rows of width elements

  Key key() const { return {}; }
};

Status check(const StoreLatentArgs& args);
Cost cost(const StoreLatentArgs& args);
void reference(const StoreLatentArgs& args);

Status check(const StoreIndexKeyArgs& args);
Cost cost(const StoreIndexKeyArgs& args);
void reference(const StoreIndexKeyArgs& args);

Status check(const StoreRowsArgs& args);
Cost cost(const StoreRowsArgs& args);
void reference(const StoreRowsArgs& args);

template <ArgsOf<StoreLatentArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("kv", args.kv);
  v.in("weight", args.weight);
  v.in("cosine", args.cosine);
  v.in("sine", args.sine);
  v.places(args.places);
  v.cache_out("cache", args.cache);
}

template <ArgsOf<StoreIndexKeyArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("k", args.k);
  v.in("weight", args.weight);
  v.in("bias", args.bias);
  v.in("cosine", args.cosine);
  v.in("sine", args.sine);
  v.places(args.places);
  v.cache_out("cache", args.cache);
}

template <ArgsOf<StoreRowsArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.places(args.places);
  v.cache_out("cache", args.cache);
}

}  // namespace reckoner
