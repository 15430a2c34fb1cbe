// What every op has: Args with a key, check(), cost() and a scalar reference(). The other headers of this folder hold one op each.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace reckoner {

// exact: activations stay float and sums are formed in float: reproduces the references.
// fast: kernels may round activations to what the instructions want (BF16).
enum class Precision : std::uint8_t { exact, fast };

// What a kernel is chosen by.
struct Key {
  Precision precision = Precision::exact;
  QuantFormat format = QuantFormat::f32;  // of the weight; f32 where the op has none
  static constexpr int kCount = 2 * kQuantFormats;
  int index() const { return static_cast<int>(format) * 2 + static_cast<int>(precision); }
};

// What an op must do at least: bytes that it must read and write (each once), and multiply-adds.
struct Cost {
  double bytes = 0;
  double multiply_adds = 0;
  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    multiply_adds += other.multiply_adds;
    return *this;
  }
};

// Ok, or an error that names the op, the argument, and the shapes expected and found.
Status expect_tensor(std::string_view op, std::string_view argument, const Tensor& tensor, DType dtype, const Shape& shape);
Status expect_that(bool condition, std::string_view op, std::string_view what);

// Args or const Args. Each op has a function visit(args, v) that names every tensor, weight and cache of its arguments to a visitor:
// v.in("x", tensor), v.out, v.inout; v.weight("w", weight), v.weights("experts", span); v.places(places), before v.cache_in("keys", view)
// and v.cache_out. A visitor may exchange what it is given (for copies on a device, say). Empty tensors are named too.
template <class A, class Args>
concept ArgsOf = std::same_as<std::remove_const_t<A>, Args>;

// An op that is several others in one go, which run in its place where no kernel serves it: says kHasParts.
template <class Args>
concept HasParts = requires {
  Args::kHasParts;
};

}  // namespace reckoner
