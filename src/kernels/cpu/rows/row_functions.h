// What the row ops ask of an instruction set. Every function works on one row, on the calling thread.
#pragma once

#include <cstdint>

namespace reckoner {

// cosine and sine of one token: [pairs] each.
struct Rotation {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::int64_t pairs = 0;
  bool interleaved = true;  // pairs (2i, 2i + 1); otherwise (i, i + pairs)
};

struct RowFunctions {
  // x[width] += add[width] when that is given; returns the sum of squares of x, not finite whenever an element is not.
  float (*add_and_square)(float* x, const float* add, std::int64_t width);
  // x[width] += add[width]
  void (*add)(float* x, const float* add, std::int64_t width);
  // y[width] = x * factor * weight; y may be x.
  void (*scale)(const float* x, float factor, const float* weight, std::int64_t width, float* y);
  // y[width] = (x - mean) / sqrt(variance + epsilon) * weight + bias
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, std::int64_t width, float* y);
  // x[2 * pairs], in place; equal to rotate() to the bit.
  void (*rotate)(float* x, const Rotation& rotation);
  // y[width] as BF16, equal to f32_to_bf16().
  void (*round_to_bf16)(const float* x, std::int64_t width, std::uint16_t* y);
  // codes[width] of a block of a quantised cache row, equal to write_row(); returns its scale.
  float (*quantise)(const float* x, std::int64_t width, std::uint8_t* codes);
  // y[width] = gate / (1 + exp(-gate)) * up; y may be gate.
  void (*silu_mul)(const float* gate, const float* up, std::int64_t width, float* y);
  // y[width] = shared (or 0) + sum of weights[k] * rows[k] in the order of k; rows[k] = rows + slots[k] * stride. y may be shared.
  void (*combine)(const float* rows, std::int64_t stride, const std::int32_t* slots, const float* weights, std::int64_t top_k,
                  const float* shared, std::int64_t width, float* y);
};

namespace avx2 {
RowFunctions row_functions();
}
namespace avx512 {
RowFunctions row_functions();
}

}  // namespace reckoner
