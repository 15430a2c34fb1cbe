#include "ops/rows.h"

#include <algorithm>
#include <cmath>

#include "quant/format.h"

namespace reckoner {

Status check(const EmbedArgs& args) {
  TRY(expect_that(args.tokens.shape.rank() == 1, EmbedArgs::kName, "argument tokens must be [tokens]"));
  TRY(expect_tensor(EmbedArgs::kName, "tokens", args.tokens, DType::i32, args.tokens.shape));
  return expect_tensor(EmbedArgs::kName, "y", args.y, DType::f32, {args.tokens.dim(0), args.table.cols});
}

Cost cost(const EmbedArgs& args) { return {.bytes = 1.5 * static_cast<double>(args.y.bytes()), .multiply_adds = 0}; }

void reference(const EmbedArgs& args) {
  const std::int64_t width = args.table.cols;
  for (std::int64_t token = 0; token < args.tokens.dim(0); ++token) {
    const std::int32_t id = args.tokens.i32()[token];
    CHECK(id >= 0 && id < args.table.rows, "a token id outside the vocabulary");
    info(args.table.format).dequantise(args.table, id, 0, width, args.y.f32() + token * width);
  }
}

Status check(const GatherRowsArgs& args) {
  TRY(expect_that(args.x.shape.rank() == 2 && args.rows.shape.rank() == 1, GatherRowsArgs::kName,
                  "x must be [tokens, width], rows [count]"));
  TRY(expect_tensor(GatherRowsArgs::kName, "x", args.x, DType::f32, args.x.shape));
  return expect_tensor(GatherRowsArgs::kName, "y", args.y, DType::f32, {args.rows.dim(0), args.x.dim(1)});
}

Cost cost(const GatherRowsArgs& args) { return {.bytes = 2.0 * static_cast<double>(args.y.bytes()), .multiply_adds = 0}; }

void reference(const GatherRowsArgs& args) {
  const std::int64_t width = args.x.dim(1);
  for (std::int64_t i = 0; i < args.rows.dim(0); ++i) {
    std::copy_n(args.x.f32() + args.rows.i32()[i] * width, width, args.y.f32() + i * width);
  }
}

Status check(const SiluMulArgs& args) {
  TRY(expect_tensor(SiluMulArgs::kName, "gate", args.gate, DType::f32, args.gate.shape));
  TRY(expect_tensor(SiluMulArgs::kName, "up", args.up, DType::f32, args.gate.shape));
  return expect_tensor(SiluMulArgs::kName, "y", args.y, DType::f32, args.gate.shape);
}

Cost cost(const SiluMulArgs& args) {
  return {.bytes = 3.0 * static_cast<double>(args.y.bytes()), .multiply_adds = 2.0 * static_cast<double>(args.y.shape.elements())};
}

void reference(const SiluMulArgs& args) {
  for (std::int64_t i = 0; i < args.y.shape.elements(); ++i) {
    const float gate = args.gate.f32()[i];
    args.y.f32()[i] = gate / (1.0f + std::exp(-gate)) * args.up.f32()[i];
  }
}

Status check(const AddBiasArgs& args) {
  TRY(expect_that(args.x.shape.rank() == 2, AddBiasArgs::kName, "x must be [rows, width]"));
  TRY(expect_tensor(AddBiasArgs::kName, "x", args.x, DType::f32, args.x.shape));
  return expect_tensor(AddBiasArgs::kName, "bias", args.bias, DType::f32, {args.x.dim(1)});
}

Cost cost(const AddBiasArgs& args) {
  return {.bytes = 2.0 * static_cast<double>(args.x.bytes()), .multiply_adds = static_cast<double>(args.x.shape.elements())};
}

void reference(const AddBiasArgs& args) {
  const std::int64_t width = args.x.dim(1);
  for (std::int64_t i = 0; i < args.x.shape.elements(); ++i) args.x.f32()[i] += args.bias.f32()[i % width];
}

}  // namespace reckoner
