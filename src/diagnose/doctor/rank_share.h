// What one of several ranks has of a model: for planning, no weight is copied or cut.
#pragma once

#include <memory>

#include "model/loader.h"

namespace reckoner::doctor {

// How ranks divide a tensor.
enum class Placement : std::uint8_t {
  sharded,     // each rank has its part
  replicated,  // each rank has all of it
};

// THE rule of how ranks divide weights, and the only place that knows it: heads of attention, the inner width of every MLP and expert and
// the vocabulary of the output head are divided; everything else (the latent projections, the indexer, routers, norms, the embedding) is
// whole on each rank. A tensor-parallel runner's own rule takes its place here.
Placement placement_of(const WeightRule& rule);

// Error: something is not divisible by `ranks`; says what, and which numbers of ranks are possible.
Status check_ranks(const Model& whole, int ranks);

// The share of one rank as a Model that steps can be planned for: heads, widths and shapes are those of its part, its bytes are not.
// `whole` must outlive it. Of as many ranks as check_ranks() allows.
std::unique_ptr<Model> rank_share(const Model& whole, int ranks);

}  // namespace reckoner::doctor
