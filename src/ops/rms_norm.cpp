#include "ops/rms_norm.h"

#include <cmath>

namespace reckoner {

Status check(const RmsNormArgs& args) {
  constexpr std::string_view op = RmsNormArgs::kName;
  TRY(expect_that(args.x.shape.rank() == 2, op, "argument x must be [tokens, width]"));
  TRY(expect_tensor(op, "x", args.x, DType::f32, args.x.shape));
  if (args.add.shape.rank() != 0) TRY(expect_tensor(op, "add", args.add, DType::f32, args.x.shape));
  TRY(expect_tensor(op, "weight", args.weight, DType::f32, {args.x.dim(1)}));
  if (args.guard.first_bad.shape.rank() != 0) TRY(expect_tensor(op, "guard.first_bad", args.guard.first_bad, DType::i32, {args.x.dim(0)}));
  if (args.guard.rms.shape.rank() != 0) TRY(expect_tensor(op, "guard.rms", args.guard.rms, DType::f32, {args.x.dim(0)}));
  return expect_tensor(op, "y", args.y, DType::f32, args.x.shape);
}

Cost cost(const RmsNormArgs& args) {
  const auto bytes = static_cast<double>(args.x.bytes());
  return {.bytes = args.add.shape.rank() != 0 ? 4 * bytes : 2 * bytes, .multiply_adds = bytes / 2};
}

void reference(const RmsNormArgs& args) {
  const std::int64_t width = args.x.dim(1);
  for (std::int64_t token = 0; token < args.x.dim(0); ++token) {
    float* x = args.x.f32() + token * width;
    float* y = args.y.f32() + token * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      if (!args.add.empty()) x[i] += args.add.f32()[token * width + i];
      sum += static_cast<double>(x[i]) * x[i];
    }
    // In float, as every kernel forms it: a sum that overflows float is bad too.
    const auto squares = static_cast<float>(sum);
    if (!args.guard.first_bad.empty() && !std::isfinite(squares)) {
      std::int32_t& first_bad = args.guard.first_bad.i32()[token];
      if (first_bad == Guard::kClean) first_bad = args.guard.place;
    }
    const float mean = squares / static_cast<float>(width);
    if (!args.guard.rms.empty()) args.guard.rms.f32()[token] = std::sqrt(mean);
    const float inverse = 1.0f / std::sqrt(mean + args.epsilon);
    for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * inverse * args.weight.f32()[i];
  }
}

}  // namespace reckoner
