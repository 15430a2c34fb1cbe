// TensorSource: where weights come from, by published name. A checkpoint is one; a test or a benchmark makes others.
#pragma once

#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace reckoner {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The tensor of that name, or nullptr. The view stays valid as long as the source lives.
  virtual const Tensor* find(std::string_view name) const = 0;
  // For messages: "model-00001-of-00003.safetensors: tensor 'lm_head.weight'".
  virtual std::string locate(std::string_view name) const = 0;
};

}  // namespace reckoner
