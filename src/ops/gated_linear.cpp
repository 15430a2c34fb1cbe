#include "ops/gated_linear.h"

#include <cmath>

#include "ops/linear.h"
#include "ops/rows.h"
#include "quant/format.h"

namespace reckoner {

Status check(const GatedLinearArgs& args) {
  constexpr std::string_view op = GatedLinearArgs::kName;
  TRY(expect_that(args.gate.format == args.up.format && args.gate.rows == args.up.rows && args.gate.cols == args.up.cols, op,
                  "gate and up must have one shape and format"));
  TRY(check(LinearArgs{.x = args.x, .w = args.gate, .y = args.y}));
  return expect_tensor(op, "y", args.y, DType::f32, {args.x.dim(0), args.gate.rows});
}

Cost cost(const GatedLinearArgs& args) {
  Cost both = cost(LinearArgs{.x = args.x, .w = args.gate, .y = args.y});
  both.bytes += static_cast<double>(weight_bytes(args.up));
  both.multiply_adds *= 2;
  return both;
}

void reference(const GatedLinearArgs& args) {
  Buffer up_memory(args.y.bytes());
  const Tensor up = up_memory.tensor(DType::f32, args.y.shape);
  reference(LinearArgs{.x = args.x, .w = args.gate, .y = args.y});
  reference(LinearArgs{.x = args.x, .w = args.up, .y = up});
  reference(SiluMulArgs{.gate = args.y, .up = up, .y = args.y});
}

double gated_bound(double gate, double gate_error, double up, double up_error) {
  constexpr double kSteepest = 1.1;
  const double silu = gate / (1 + std::exp(-gate));
  const double silu_error = kSteepest * gate_error + 16 * 0x1p-24 * std::fabs(silu) + (1 + std::fabs(gate)) * 0x1p-125;
  return silu_error * (std::fabs(up) + up_error) + std::fabs(silu) * up_error + 16 * 0x1p-24 * std::fabs(silu * up) + 0x1p-126;
}

}  // namespace reckoner
