#include "ops/latent.h"

#include <algorithm>
#include <vector>

#include "quant/format.h"

namespace reckoner {

Status check(const LatentQueryArgs& args) {
  constexpr std::string_view op = LatentQueryArgs::kName;
  TRY(expect_that(args.q.shape.rank() == 3 && args.q.dim(2) >= args.nope, op, "argument q must be [tokens, heads, nope + rope]"));
  const std::int64_t heads = args.q.dim(1);
  TRY(expect_that(args.kv_b.rows % heads == 0 && args.kv_b.rows / heads > args.nope, op, "kv_b must have nope + v rows a head"));
  TRY(expect_tensor(op, "q", args.q, DType::f32, args.q.shape));
  return expect_tensor(op, "y", args.y, DType::f32, {args.q.dim(0), heads, args.kv_b.cols + args.q.dim(2) - args.nope});
}

Cost cost(const LatentQueryArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const double share = static_cast<double>(args.nope * heads) / static_cast<double>(args.kv_b.rows);
  return {.bytes = share * static_cast<double>(weight_bytes(args.kv_b)) + static_cast<double>(args.q.bytes() + args.y.bytes()),
          .multiply_adds = static_cast<double>(args.q.dim(0) * heads) * static_cast<double>(args.nope * args.kv_b.cols)};
}

void reference(const LatentQueryArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t latent = args.kv_b.cols;
  const std::int64_t head_rows = args.kv_b.rows / heads;
  std::vector<float> row(static_cast<std::size_t>(latent));
  std::vector<double> sum(static_cast<std::size_t>(latent));
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* q = args.q.f32() + (token * heads + head) * args.q.dim(2);
      float* y = args.y.f32() + (token * heads + head) * args.y.dim(2);
      std::fill(sum.begin(), sum.end(), 0.0);
      for (std::int64_t p = 0; p < args.nope; ++p) {
        info(args.kv_b.format).dequantise(args.kv_b, head * head_rows + p, 0, latent, row.data());
        for (std::size_t c = 0; c < row.size(); ++c) sum[c] += static_cast<double>(q[p]) * row[c];
      }
      std::copy(sum.begin(), sum.end(), y);
      std::copy(q + args.nope, q + args.q.dim(2), y + latent);
    }
  }
}

Status check(const LatentValueArgs& args) {
  constexpr std::string_view op = LatentValueArgs::kName;
  TRY(expect_that(args.x.shape.rank() == 3, op, "argument x must be [tokens, heads, latent]"));
  const std::int64_t heads = args.x.dim(1);
  TRY(expect_that(args.kv_b.rows % heads == 0 && args.kv_b.rows / heads > args.nope, op, "kv_b must have nope + v rows a head"));
  TRY(expect_tensor(op, "x", args.x, DType::f32, {args.x.dim(0), heads, args.kv_b.cols}));
  return expect_tensor(op, "y", args.y, DType::f32, {args.x.dim(0), heads, args.kv_b.rows / heads - args.nope});
}

Cost cost(const LatentValueArgs& args) {
  const std::int64_t values = args.x.dim(1) * args.y.dim(2);
  const double share = static_cast<double>(values) / static_cast<double>(args.kv_b.rows);
  return {.bytes = share * static_cast<double>(weight_bytes(args.kv_b)) + static_cast<double>(args.x.bytes() + args.y.bytes()),
          .multiply_adds = static_cast<double>(args.x.dim(0)) * static_cast<double>(values * args.kv_b.cols)};
}

void reference(const LatentValueArgs& args) {
  const std::int64_t heads = args.x.dim(1);
  const std::int64_t latent = args.kv_b.cols;
  const std::int64_t v = args.y.dim(2);
  std::vector<float> row(static_cast<std::size_t>(latent));
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < v; ++i) {
      info(args.kv_b.format).dequantise(args.kv_b, head * (args.nope + v) + args.nope + i, 0, latent, row.data());
      for (std::int64_t token = 0; token < args.x.dim(0); ++token) {
        const float* x = args.x.f32() + (token * heads + head) * latent;
        double sum = 0;
        for (std::size_t c = 0; c < row.size(); ++c) sum += static_cast<double>(x[c]) * row[c];
        args.y.f32()[(token * heads + head) * v + i] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace reckoner
