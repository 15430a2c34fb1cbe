// What is in a checkpoint and what serving it takes, from headers and metadata alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/session.h"
#include "tensor/shape.h"

namespace reckoner {

// Weights that one rule of the family names: "model.layers.{layer}.mlp.experts.{expert}.up_proj".
struct WeightGroup {
  std::string name;
  std::int64_t count = 0;
  std::map<std::string, std::int64_t> formats;  // "NVFP4" -> how many of them
  Shape shape;                                  // of each
  std::int64_t bytes = 0;                       // in the checkpoint, scales included
  std::int64_t elements = 0;
  bool operator==(const WeightGroup&) const = default;
};

struct Inventory {
  std::vector<WeightGroup> groups;
  WeightGroup not_loaded;  // the MTP layers, which stay on disk; count 0: there are none
  std::int64_t elements() const;
  std::int64_t bytes() const;
};
Inventory take_inventory(Model& model);

struct MemoryNeeds {
  std::int64_t context = 0;  // tokens
  std::string context_why;
  std::int64_t chunk = 0;  // tokens of the largest step
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes_per_token = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t workspace_bytes = 0;  // intermediate tensors and what kernels use
  std::int64_t free_bytes = 0;       // 0: unknown
  std::int64_t total() const { return weight_bytes + cache_bytes + workspace_bytes; }
};
Result<MemoryNeeds> memory_needs(const Session& session, const LimitOptions& limits);

}  // namespace reckoner
