#include "ops/op.h"

#include <fmt/format.h>

namespace reckoner {

Status expect_tensor(std::string_view op, std::string_view argument, const Tensor& tensor, DType dtype, const Shape& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return {};
  return Error{fmt::format("{}: argument {}: expected {} {}, found {} {}", op, argument, name(dtype), shape.to_string(), name(tensor.dtype),
                           tensor.shape.to_string())};
}

Status expect_that(bool condition, std::string_view op, std::string_view what) {
  if (condition) return {};
  return Error{fmt::format("{}: {}", op, what)};
}

}  // namespace reckoner
