#include "ops/rope.h"

#include <cmath>

namespace reckoner {

Status check(const RopeAnglesArgs& args) {
  constexpr std::string_view op = RopeAnglesArgs::kName;
  TRY(expect_that(args.positions.shape.rank() == 1 && args.frequencies.shape.rank() == 1, op,
                  "positions must be [tokens], frequencies [pairs]"));
  const Shape shape{args.positions.dim(0), args.frequencies.dim(0)};
  TRY(expect_tensor(op, "positions", args.positions, DType::i32, {shape[0]}));
  TRY(expect_tensor(op, "frequencies", args.frequencies, DType::f32, {shape[1]}));
  TRY(expect_tensor(op, "cosine", args.cosine, DType::f32, shape));
  return expect_tensor(op, "sine", args.sine, DType::f32, shape);
}

Cost cost(const RopeAnglesArgs& args) { return {.bytes = 2.0 * static_cast<double>(args.cosine.bytes()), .multiply_adds = 0}; }

void reference(const RopeAnglesArgs& args) {
  const std::int64_t pairs = args.frequencies.dim(0);
  for (std::int64_t token = 0; token < args.positions.dim(0); ++token) {
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const float angle = static_cast<float>(args.positions.i32()[token]) * args.frequencies.f32()[pair];
      args.cosine.f32()[token * pairs + pair] = static_cast<float>(std::cos(static_cast<double>(angle)));
      args.sine.f32()[token * pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

Status check(const RopeHeadsArgs& args) {
  constexpr std::string_view op = RopeHeadsArgs::kName;
  TRY(expect_that(args.x.shape.rank() == 3 && args.cosine.shape.rank() == 2, op,
                  "x must be [tokens, heads, head_dim], cosine [tokens, pairs]"));
  TRY(expect_that(args.first >= 0 && args.first + 2 * args.cosine.dim(1) <= args.x.dim(2), op,
                  "the rotated part must lie inside the head"));
  TRY(expect_tensor(op, "x", args.x, DType::f32, args.x.shape));
  TRY(expect_tensor(op, "cosine", args.cosine, DType::f32, {args.x.dim(0), args.cosine.dim(1)}));
  return expect_tensor(op, "sine", args.sine, DType::f32, args.cosine.shape);
}

Cost cost(const RopeHeadsArgs& args) {
  const auto elements = static_cast<double>(args.x.dim(0) * args.x.dim(1) * 2 * args.cosine.dim(1));
  return {.bytes = 8 * elements, .multiply_adds = 2 * elements};
}

void rotate(float* x, const float* cosine, const float* sine, std::int64_t pairs, RopeLayout layout) {
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    float& a = layout == RopeLayout::interleaved ? x[2 * pair] : x[pair];
    float& b = layout == RopeLayout::interleaved ? x[2 * pair + 1] : x[pair + pairs];
    const float rotated = a * cosine[pair] - b * sine[pair];
    b = b * cosine[pair] + a * sine[pair];
    a = rotated;
  }
}

void reference(const RopeHeadsArgs& args) {
  const std::int64_t pairs = args.cosine.dim(1);
  for (std::int64_t row = 0; row < args.x.dim(0) * args.x.dim(1); ++row) {
    const std::int64_t token = row / args.x.dim(1);
    rotate(args.x.f32() + row * args.x.dim(2) + args.first, args.cosine.f32() + token * pairs, args.sine.f32() + token * pairs, pairs,
           args.layout);
  }
}

}  // namespace reckoner
