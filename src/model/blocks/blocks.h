// The blocks of a decoder layer: straight code over ops. Shapes stand beside every tensor. Where ranks share the model, what attention and
// the feed-forward part return is this rank's part of a sum; StepRunner adds the parts up.
#pragma once

#include "model/forward.h"

namespace reckoner {

// Multi-head latent attention of normalised x [tokens, hidden] -> [tokens, hidden]. Writes the layer's cache rows of these tokens.
// `selection` (nullptr: dense) is read, after the layer's own indexer has written it where the layer owns one.
Tensor mla_attention(Forward& forward, const LayerWeights& weights, std::int64_t layer, const Tensor& x, Selection* selection);

// Grouped-query attention of normalised x [tokens, hidden] -> [tokens, hidden]. Writes the layer's cache rows of these tokens.
Tensor grouped_attention(Forward& forward, const LayerWeights& weights, std::int64_t layer, const Tensor& x);

// down( silu(gate x) * up x ): [tokens, hidden] -> [tokens, hidden]
Tensor mlp(Forward& forward, const MlpWeights& weights, const Tensor& x);

// Routed experts plus the shared one: [tokens, hidden] -> [tokens, hidden]
Tensor moe(Forward& forward, const MoeWeights& weights, std::int64_t layer, const Tensor& x);

}  // namespace reckoner
