#include "ops/linear_experts.h"

#include <algorithm>

#include "ops/linear.h"
#include "quant/format.h"

namespace reckoner {

Status check(const LinearExpertsArgs& args) {
  constexpr std::string_view op = LinearExpertsArgs::kName;
  TRY(expect_that(!args.experts.empty() && args.x.shape.rank() == 2, op, "needs experts, and x as [rows, in]"));
  const Weight& first = args.experts.front();
  const bool alike = std::all_of(args.experts.begin(), args.experts.end(),
                                 [&](const Weight& w) { return w.format == first.format && w.rows == first.rows && w.cols == first.cols; });
  TRY(expect_that(alike, op, "all experts must have one shape and format"));
  const std::int64_t slots = args.slots.tokens.shape.elements();
  TRY(expect_tensor(op, "slots.begin", args.slots.begin, DType::i32, {static_cast<std::int64_t>(args.experts.size()) + 1}));
  TRY(expect_tensor(op, "slots.tokens", args.slots.tokens, DType::i32, {slots}));
  TRY(expect_tensor(op, "x", args.x, DType::f32, {args.rows == LinearExpertsArgs::Rows::by_slot ? slots : args.x.dim(0), first.cols}));
  return expect_tensor(op, "y", args.y, DType::f32, {slots, first.rows});
}

Cost cost(const LinearExpertsArgs& args) {
  const Weight& first = args.experts.front();
  const std::int64_t slots = args.y.dim(0);
  const auto touched = std::min(slots, static_cast<std::int64_t>(args.experts.size()));
  return {.bytes = static_cast<double>(touched * weight_bytes(first) + args.x.bytes() + args.y.bytes()),
          .multiply_adds = static_cast<double>(slots) * static_cast<double>(first.rows * first.cols)};
}

void reference(const LinearExpertsArgs& args) {
  for (std::size_t expert = 0; expert < args.experts.size(); ++expert) {
    const std::int32_t* begin = args.slots.begin.i32() + expert;
    for (std::int32_t slot = begin[0]; slot < begin[1]; ++slot) {
      const std::int32_t row = args.rows == LinearExpertsArgs::Rows::by_token ? args.slots.tokens.i32()[slot] : slot;
      reference(LinearArgs{.x = args.x.rows(row, 1), .w = args.experts[expert], .y = args.y.rows(slot, 1)});
    }
  }
}

}  // namespace reckoner
