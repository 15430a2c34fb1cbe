// Weights on the device: eight neighbouring elements of a row as floats, in every format.
#pragma once

#include "kernels/cuda/common/numbers.cuh"
#include "quant/format.h"
#include "quant/weight.h"

namespace reckoner::cuda {

struct DeviceWeight {
  const std::byte* data;
  const std::byte* scales;
  std::int64_t rows, cols, row_bytes, scale_row_bytes, first_row;
  float scale;
};

inline DeviceWeight device_weight(const Weight& w) {
  const FormatInfo& format = info(w.format);
  return {.data = w.data,
          .scales = w.scales,
          .rows = w.rows,
          .cols = w.cols,
          .row_bytes = format.row_bytes(w.cols),
          .scale_row_bytes = format.scale_row_bytes(w.cols),
          .first_row = w.first_row,
          .scale = w.scale};
}

// The experts of a layer lie one after the other: the data and the scales of each are as far from the last's.
inline constexpr int kMostExperts = 512;
struct DeviceExperts {
  DeviceWeight first;
  std::int64_t data_stride, scales_stride;
  int count;
  float scale[kMostExperts];
};

inline DeviceExperts device_experts(std::span<const Weight> experts) {
  CHECK(!experts.empty() && experts.size() <= kMostExperts, "at most 512 experts");
  DeviceExperts all{
      .first = device_weight(experts.front()), .data_stride = 0, .scales_stride = 0, .count = static_cast<int>(experts.size())};
  if (experts.size() > 1) {
    all.data_stride = experts[1].data - experts[0].data;
    all.scales_stride = experts[1].scales - experts[0].scales;
  }
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const auto at = static_cast<std::int64_t>(e);
    CHECK(experts[e].data == experts[0].data + at * all.data_stride && experts[e].first_row == experts[0].first_row &&
              experts[e].scales == experts[0].scales + at * all.scales_stride,
          "the experts of a layer must lie at one distance");
    all.scale[e] = experts[e].scale;
  }
  return all;
}

__device__ inline DeviceWeight expert_weight(const DeviceExperts& experts, int expert) {
  DeviceWeight w = experts.first;
  w.data += expert * experts.data_stride;
  w.scales += expert * experts.scales_stride;
  w.scale = experts.scale[expert];
  return w;
}

__device__ inline std::uint32_t byte_at(const std::byte* at) { return static_cast<std::uint32_t>(*at); }
__device__ inline std::uint32_t half_at(const std::byte* at) { return *reinterpret_cast<const std::uint16_t*>(at); }
__device__ inline std::uint32_t word_at(const std::byte* at) { return *reinterpret_cast<const std::uint32_t*>(at); }
__device__ inline float float_at(const std::byte* at) { return *reinterpret_cast<const float*>(at); }

template <QuantFormat kFormat>
__device__ const std::byte* scales_of_row(const DeviceWeight& w, std::int64_t row) {
  constexpr std::int64_t kBlockRows = kFormat == QuantFormat::fp8_block ? 128 : 1;
  return w.scales + (w.first_row + row) / kBlockRows * w.scale_row_bytes;
}

// Eight codes of `kBytes` each, in one piece where rows are whole pieces.
template <int kBytes>
__device__ void load_codes(const std::byte* at, int count, bool whole, std::uint32_t (&codes)[8]) {
  if (whole) {
    std::uint32_t words[2 * kBytes];
    if constexpr (kBytes == 1) {
      const uint2 piece = *reinterpret_cast<const uint2*>(at);
      words[0] = piece.x, words[1] = piece.y;
    } else {
#pragma unroll
      for (int i = 0; i < kBytes / 2; ++i) {
        const uint4 piece = reinterpret_cast<const uint4*>(at)[i];
        words[4 * i] = piece.x, words[4 * i + 1] = piece.y, words[4 * i + 2] = piece.z, words[4 * i + 3] = piece.w;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kBytes == 1) codes[i] = words[i / 4] >> i % 4 * 8 & 0xffu;
      if constexpr (kBytes == 2) codes[i] = words[i / 2] >> i % 2 * 16 & 0xffffu;
      if constexpr (kBytes == 4) codes[i] = words[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    codes[i] = 0;
    if (i >= count) continue;
    if constexpr (kBytes == 1) codes[i] = byte_at(at + i);
    if constexpr (kBytes == 2) codes[i] = half_at(at + 2 * i);
    if constexpr (kBytes == 4) codes[i] = word_at(at + 4 * i);
  }
}

// w[row, first + i] for i < 8, zero from the end of the row on. The products are formed in the order of the scalar dequantise().
// `first` is a multiple of 8.
template <QuantFormat kFormat>
__device__ void load_eight(const DeviceWeight& w, std::int64_t row, std::int64_t first, float (&out)[8]) {
  using F = QuantFormat;
  const std::byte* codes = w.data + row * w.row_bytes;
  const int count = static_cast<int>(min(static_cast<long long>(w.cols - first), 8ll));
  const bool whole = w.cols % 8 == 0;
  if constexpr (kFormat == F::f32 || kFormat == F::f16 || kFormat == F::bf16) {
    constexpr int kBytes = kFormat == F::f32 ? 4 : 2;
    std::uint32_t bits[8];
    load_codes<kBytes>(codes + kBytes * first, count, whole, bits);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kFormat == F::f32) out[i] = __uint_as_float(bits[i]) * w.scale;
      if constexpr (kFormat == F::f16) out[i] = half_to_float(bits[i]) * w.scale;
      if constexpr (kFormat == F::bf16) out[i] = bf16_to_float(bits[i]) * w.scale;
    }
  } else {
    const std::byte* scales = scales_of_row<kFormat>(w, row);
    constexpr bool kFourBits = kFormat == F::nvfp4 || kFormat == F::mxfp4 || kFormat == F::int4_g32;
    float scale = 1;  // one for all eight: no format has a smaller block
    if constexpr (kFormat == F::nvfp4) scale = e4m3_to_float(byte_at(scales + first / 16));
    if constexpr (kFormat == F::mxfp4 || kFormat == F::mxfp8) scale = e8m0_to_float(byte_at(scales + first / 32));
    if constexpr (kFormat == F::int4_g32) scale = bf16_to_float(half_at(scales + 2 * (first / 32)));
    if constexpr (kFormat == F::fp8_block) scale = float_at(scales + 4 * (first / 128));
    if constexpr (kFormat == F::fp8_channel) scale = float_at(scales) * w.scale;
    std::uint32_t bits[8];
    if constexpr (kFourBits) {
      const std::uint32_t packed = word_at(codes + first / 2);
#pragma unroll
      for (int i = 0; i < 8; ++i) bits[i] = packed >> 4 * i & 15u;
    } else {
      load_codes<1>(codes + first, count, whole, bits);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float value;
      if constexpr (kFormat == F::int4_g32) {
        value = static_cast<float>(static_cast<int>(bits[i]) - 8);
      } else if constexpr (kFourBits) {
        value = e2m1_to_float(bits[i]);
      } else {
        value = e4m3_to_float(bits[i]);
      }
      out[i] = value * scale;
      if constexpr (kFormat != F::fp8_channel) out[i] *= w.scale;
    }
    // Beyond the end there are no codes, and the scale may be anything.
    if constexpr (!kFourBits) {
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = i < count ? out[i] : 0.0f;
    }
  }
}

// Calls body.template operator()<format>() for the weight's format.
template <class Body>
void for_format(QuantFormat format, Body&& body) {
  using F = QuantFormat;
  switch (format) {
    case F::f32:
      return body.template operator()<F::f32>();
    case F::f16:
      return body.template operator()<F::f16>();
    case F::bf16:
      return body.template operator()<F::bf16>();
    case F::nvfp4:
      return body.template operator()<F::nvfp4>();
    case F::mxfp4:
      return body.template operator()<F::mxfp4>();
    case F::int4_g32:
      return body.template operator()<F::int4_g32>();
    case F::fp8_block:
      return body.template operator()<F::fp8_block>();
    case F::fp8_channel:
      return body.template operator()<F::fp8_channel>();
    case F::mxfp8:
      return body.template operator()<F::mxfp8>();
  }
}

}  // namespace reckoner::cuda
