#include "ops/experts_combine.h"

#include "quant/format.h"

namespace reckoner {

LinearArgs shared_of(const ExpertsCombineArgs& args) {
  return {.x = args.shared_x, .w = args.shared, .y = args.y, .precision = args.precision};
}

LinearExpertsArgs experts_of(const ExpertsCombineArgs& args, const Tensor& rows) {
  return {.x = args.x,
          .experts = args.experts,
          .slots = args.slots,
          .rows = LinearExpertsArgs::Rows::by_slot,
          .y = rows,
          .precision = args.precision};
}

CombineArgs combine_of(const ExpertsCombineArgs& args, const Tensor& rows) {
  return {.rows = rows, .weights = args.weights, .slot_of = args.slot_of, .shared = args.y, .y = args.y};
}

namespace {

// Of the routed experts' results, without data.
Tensor rows_shape(const ExpertsCombineArgs& args) {
  return {.data = nullptr, .dtype = DType::f32, .shape = {args.slots.tokens.shape.elements(), args.experts.front().rows}};
}

}  // namespace

Status check(const ExpertsCombineArgs& args) {
  constexpr std::string_view op = ExpertsCombineArgs::kName;
  TRY(expect_that(!args.experts.empty() && args.shared.rows == args.experts.front().rows, op,
                  "needs experts, and a shared one of as many rows"));
  TRY(check(shared_of(args)));
  TRY(check(experts_of(args, rows_shape(args))));
  TRY(check(combine_of(args, rows_shape(args))));
  return expect_tensor(op, "y", args.y, DType::f32, {args.weights.dim(0), args.shared.rows});
}

Cost cost(const ExpertsCombineArgs& args) {
  Cost all = cost(shared_of(args));
  const Cost experts = cost(experts_of(args, rows_shape(args)));
  all.bytes += experts.bytes - static_cast<double>(rows_shape(args).bytes());
  all.multiply_adds += experts.multiply_adds + static_cast<double>(rows_shape(args).shape.elements());
  return all;
}

void reference(const ExpertsCombineArgs& args) {
  Buffer memory(rows_shape(args).bytes());
  const Tensor rows = memory.tensor(DType::f32, rows_shape(args).shape);
  reference(shared_of(args));
  reference(experts_of(args, rows));
  reference(combine_of(args, rows));
}

}  // namespace reckoner
