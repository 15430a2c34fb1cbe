// What the references of attend_latent and attend_grouped share: the attention of one head.
#pragma once

#include <cstdint>
#include <vector>

namespace reckoner {

using RowsOfFloats = std::vector<std::vector<float>>;

// p = softmax_s( scale * q . keys[s] );  y[i] = sum_s p[s] values[s][i] for i < width. Without keys, y is zero.
void attend_rows(const float* q, const RowsOfFloats& keys, const RowsOfFloats& values, float scale, std::int64_t width, float* y);

}  // namespace reckoner
