#include "ops/linear.h"

#include <vector>

#include "quant/format.h"

namespace reckoner {

Status check(const LinearArgs& args) {
  TRY(expect_that(args.x.shape.rank() == 2, LinearArgs::kName, "argument x must be [tokens, in]"));
  const std::int64_t tokens = args.x.dim(0);
  TRY(expect_tensor(LinearArgs::kName, "x", args.x, DType::f32, {tokens, args.w.cols}));
  TRY(expect_that(args.w.cols % info(args.w.format).cols_multiple == 0, LinearArgs::kName,
                  "columns must be whole blocks of the weight's format"));
  return expect_tensor(LinearArgs::kName, "y", args.y, DType::f32, {tokens, args.w.rows});
}

Cost cost(const LinearArgs& args) {
  return {.bytes = static_cast<double>(weight_bytes(args.w) + args.x.bytes() + args.y.bytes()),
          .multiply_adds = static_cast<double>(args.x.dim(0)) * static_cast<double>(args.w.rows * args.w.cols)};
}

void reference(const LinearArgs& args) {
  const std::int64_t tokens = args.x.dim(0);
  const Weight& w = args.w;
  std::vector<float> row(static_cast<std::size_t>(w.cols));
  for (std::int64_t out = 0; out < w.rows; ++out) {
    info(w.format).dequantise(w, out, 0, w.cols, row.data());
    for (std::int64_t token = 0; token < tokens; ++token) {
      const float* x = args.x.f32() + token * w.cols;
      double sum = 0;
      for (std::int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(x[k]) * row[static_cast<std::size_t>(k)];
      args.y.f32()[token * w.rows + out] = static_cast<float>(sum);
    }
  }
}

double linear_tolerance(Precision precision, std::int64_t in) {
  return 2.0 * static_cast<double>(in + 8) * 0x1p-24 + (precision == Precision::fast ? 0x1p-8 : 0.0);
}

}  // namespace reckoner
