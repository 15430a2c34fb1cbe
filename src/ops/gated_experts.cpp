#include "ops/gated_experts.h"

#include "ops/rows.h"

namespace reckoner {

LinearExpertsArgs gate_of(const GatedExpertsArgs& args, const Tensor& gate) {
  return {.x = args.x,
          .experts = args.gate,
          .slots = args.slots,
          .rows = LinearExpertsArgs::Rows::by_token,
          .y = gate,
          .precision = args.precision};
}

LinearExpertsArgs up_of(const GatedExpertsArgs& args, const Tensor& up) {
  LinearExpertsArgs other = gate_of(args, up);
  other.experts = args.up;
  return other;
}

Status check(const GatedExpertsArgs& args) {
  constexpr std::string_view op = GatedExpertsArgs::kName;
  TRY(expect_that(!args.gate.empty() && args.gate.size() == args.up.size(), op, "needs as many gates as ups"));
  const Weight &gate = args.gate.front(), &up = args.up.front();
  TRY(expect_that(gate.format == up.format && gate.rows == up.rows && gate.cols == up.cols, op,
                  "gate and up must have one shape and format"));
  TRY(check(gate_of(args, args.y)));
  return check(up_of(args, args.y));
}

Cost cost(const GatedExpertsArgs& args) {
  Cost both = cost(gate_of(args, args.y));
  both += cost(up_of(args, args.y));
  both.bytes -= static_cast<double>(args.x.bytes() + args.y.bytes());  // once, not twice
  return both;
}

void reference(const GatedExpertsArgs& args) {
  Buffer up_memory(args.y.bytes());
  const Tensor up = up_memory.tensor(DType::f32, args.y.shape);
  reference(gate_of(args, args.y));
  reference(up_of(args, up));
  const std::int64_t slots = args.slots.begin.i32()[args.gate.size()];  // the other rows of y stay what they were
  if (slots > 0) reference(SiluMulArgs{.gate = args.y.rows(0, slots), .up = up.rows(0, slots), .y = args.y.rows(0, slots)});
}

}  // namespace reckoner
