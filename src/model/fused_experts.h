// Checkpoints saved by newer libraries may hold all experts of a layer in one tensor: `mlp.experts.gate_up_proj` [experts, 2 * inner,
// hidden] (gate first) and `mlp.experts.down_proj` [experts, hidden, inner]. This source gives their parts under the names that the
// families use.
#pragma once

#include <map>

#include "tensor/tensor_source.h"

namespace reckoner {

class FusedExperts : public TensorSource {
 public:
  explicit FusedExperts(const TensorSource& source) : source_(source) {}
  // "...experts.7.up_proj.weight" is found in the source, or else in its "...experts.gate_up_proj" (plain dtypes only).
  const Tensor* find(std::string_view name) const override;
  std::string locate(std::string_view name) const override { return source_.locate(name); }

 private:
  const TensorSource& source_;
  mutable std::map<std::string, Tensor, std::less<>> parts_;
};

}  // namespace reckoner
