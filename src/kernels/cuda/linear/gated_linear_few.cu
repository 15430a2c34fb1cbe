// gated_linear for few tokens and few rows, where a layer's rows in tiles of sixteen would leave most of the device idle: a block has two
// rows of gate and the same two of up, each thread every 256th piece of eight columns of all four. Activations stay float, and a token's
// sums are formed in one order however many tokens there are. The first weights are asked for before the kernel ahead has ended.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/linear/gated.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRows = 2;    // of each of the two matrices, a block
constexpr int kAtOnce = 3;  // pieces of a row that a thread has under way: all there are of 6144 columns
constexpr int kMostTokens = 8;
// Each block reads all activations: beyond so many rows of all tokens that is more than the weights.
constexpr std::int64_t kMostTokenRows = 2048;

// Eight elements of a row as they lie in memory.
template <QuantFormat kFormat>
struct Piece;
template <>
struct Piece<QuantFormat::bf16> {
  uint4 codes;
  __device__ void load(const DeviceWeight& w, std::int64_t row, int piece) {
    codes = *reinterpret_cast<const uint4*>(w.data + row * w.row_bytes + piece * 16);
  }
  __device__ void values(float (&out)[8]) const {
    const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  }
};
template <>
struct Piece<QuantFormat::nvfp4> {
  std::uint32_t codes, scale;
  __device__ void load(const DeviceWeight& w, std::int64_t row, int piece) {
    codes = word_at(w.data + row * w.row_bytes + piece * 4);
    scale = byte_at(w.scales + (w.first_row + row) * w.scale_row_bytes + piece / 2);
  }
  __device__ void values(float (&out)[8]) const {
    const float factor = e4m3_to_float(scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = e2m1_to_float(codes >> 4 * i & 15u) * factor;
  }
};
template <>
struct Piece<QuantFormat::fp8_block> {
  uint2 codes;
  float scale;
  __device__ void load(const DeviceWeight& w, std::int64_t row, int piece) {
    codes = *reinterpret_cast<const uint2*>(w.data + row * w.row_bytes + piece * 8);
    scale = float_at(scales_of_row<QuantFormat::fp8_block>(w, row) + piece / 16 * 4);
  }
  __device__ void values(float (&out)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = e4m3_to_float((i < 4 ? codes.x : codes.y) >> i % 4 * 8 & 0xffu) * scale;
  }
};

// Sums each of kCount values over the warp: lane l ends with the sum of value l / (32 / kCount). The sums are those of warp_sum().
template <int kCount, int kStep = 16, int kAll>
__device__ float sum_each(float (&values)[kAll]) {
  if constexpr (kStep == 0) {
    return values[0];
  } else if constexpr (kCount == 1) {
    values[0] += __shfl_xor_sync(kAllLanes, values[0], kStep);
    return sum_each<1, kStep / 2>(values);
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, upper ? values[i] : values[i + kHalf], kStep);
      values[i] = (upper ? values[i + kHalf] : values[i]) + other;
    }
    return sum_each<kHalf, kStep / 2>(values);
  }
}

template <QuantFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kThreads, kTokens <= 2 ? 2 : 1)
    gated_linear_few_kernel(DeviceWeight gate, DeviceWeight up, const float* x, float* y, int tokens) {
  constexpr int kSums = 2 * kRows * kTokens;
  __shared__ float shared[kWarps][kSums];
  const int thread = static_cast<int>(threadIdx.x), pieces = static_cast<int>(gate.cols / 8), rows = static_cast<int>(gate.rows);
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  Piece<kFormat> weights[kAtOnce][2 * kRows];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = min(first + i * kThreads, pieces - 1);
#pragma unroll
      for (int r = 0; r < 2 * kRows; ++r) weights[i][r].load(r < kRows ? gate : up, min(first_row + r % kRows, rows - 1), piece);
    }
  };
  fetch(thread);
  begin_kernel();
  float sums[kSums] = {};  // [rows of gate, then of up][tokens]
  for (int first = thread; first < pieces; first += kAtOnce * kThreads) {
    if (first != thread) fetch(first);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = first + i * kThreads;
      if (piece >= pieces) continue;
      float values[2 * kRows][8];
#pragma unroll
      for (int r = 0; r < 2 * kRows; ++r) weights[i][r].values(values[r]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const auto* row = reinterpret_cast<const float4*>(x + min(t, tokens - 1) * gate.cols) + 2 * piece;
        const float4 low = row[0], high = row[1];
        const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < 2 * kRows; ++r) {
#pragma unroll
          for (int c = 0; c < 8; ++c) sums[r * kTokens + t] = fmaf(values[r][c], all[c], sums[r * kTokens + t]);
        }
      }
    }
  }
  const float sum = sum_each<kSums>(sums);
  constexpr int kAlike = 32 / kSums;  // lanes that have the same sum
  if (thread % kAlike == 0) shared[thread / 32][thread % 32 / kAlike] = sum;
  __syncthreads();
  if (thread >= kRows * kTokens) return;
  const int token = thread / kRows, row = thread % kRows;
  if (token >= tokens || first_row + row >= rows) return;
  float g = 0, u = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    g += shared[warp][row * kTokens + token];
    u += shared[warp][(kRows + row) * kTokens + token];
  }
  g *= gate.scale, u *= up.scale;
  y[std::int64_t{token} * rows + first_row + row] = g / (1.0f + expf(-g)) * u;
}

template <class Body>
void for_served_format(QuantFormat format, Body&& body) {
  using F = QuantFormat;
  if (format == F::bf16) body.template operator()<F::bf16>();
  if (format == F::nvfp4) body.template operator()<F::nvfp4>();
  if (format == F::fp8_block) body.template operator()<F::fp8_block>();
}

template <class Body>
void for_token_count(std::int64_t tokens, Body&& body) {
  if (tokens == 1) return body.template operator()<1>();
  if (tokens == 2) return body.template operator()<2>();
  if (tokens <= 4) return body.template operator()<4>();
  body.template operator()<kMostTokens>();
}

}  // namespace

bool has_gated_linear_few(QuantFormat format) {
  bool has = false;
  for_served_format(format, [&]<QuantFormat>() { has = true; });
  return has;
}

bool fits_gated_linear_few(const GatedLinearArgs& args) {
  const std::int64_t tokens = args.x.dim(0);
  return has_gated_linear_few(args.gate.format) && args.gate.cols % 128 == 0 &&
         (tokens == 1 || (tokens <= kMostTokens && tokens * args.gate.rows <= kMostTokenRows));
}

void run_gated_linear_few(const GatedLinearArgs& args, Lane& lane) {
  const auto tokens = static_cast<int>(args.x.dim(0));
  for_token_count(tokens, [&]<int kTokens>() {
    for_served_format(args.gate.format, [&]<QuantFormat kFormat>() {
      launch(gated_linear_few_kernel<kFormat, kTokens>, blocks_for(args.gate.rows, kRows), kThreads, 0, stream_of(lane),
             device_weight(args.gate), device_weight(args.up), args.x.f32(), args.y.f32(), tokens);
    });
  });
}

}  // namespace reckoner::cuda
