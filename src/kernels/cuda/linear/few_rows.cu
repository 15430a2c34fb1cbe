// linear and linear_experts for few tokens, where reading the weights is all the work: they stream through registers once, become BF16
// pairs there, and are the large operand of a matrix instruction whose small one holds eight tokens. The warps of a block share the columns
// of a few rows; their sums are added in order. In `exact` the activations are three BF16 numbers each, which lose nothing.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kTokens = 8;
constexpr std::int64_t kColumnsMultiple = 128;

// The lane's operand of one unit: eight columns of its token (lane / 4), zero without one.
template <class C, int kParts>
__device__ void load_tokens(const float* x, std::uint32_t (&pairs)[kParts][4]) {
  float values[8] = {};
  if (x != nullptr) {
    const float4 low = *reinterpret_cast<const float4*>(x), high = *reinterpret_cast<const float4*>(x + 4);
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t parts[kParts];
    split_pair<kParts>(values[C::first(i)], values[C::second(i)], parts);
#pragma unroll
    for (int part = 0; part < kParts; ++part) pairs[part][i] = parts[part];
  }
}

// Where a block's warps leave their sums: [warp][token][row].
template <int kTiles>
struct SharedSums {
  float sums[kWarps][kTokens][kTiles * 16 + 4];
  int bad[kTiles * 16];  // rows with a code or scale that is NaN
};

// y[t][row] for the rows [first_row, first_row + 16 kTiles) that exist. `x` is the row of this lane's token (lane / 4) or null; `y(t)` the
// place of token t's.
template <QuantFormat kFormat, int kParts, int kTiles, class Output>
__device__ void few_rows(const DeviceWeight& w, std::int64_t first_row, const float* x, int tokens, SharedSums<kTiles>& shared,
                         const Output& y) {
  using C = Chunk<kFormat>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int chunks = static_cast<int>(w.cols / C::kColumns);
  const std::byte* rows[kTiles][2];
  const std::byte* scales[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = min(static_cast<long long>(first_row + tile * 16 + half * 8 + g), static_cast<long long>(w.rows - 1));
      rows[tile][half] = w.data + row * w.row_bytes;
      scales[tile][half] = scales_of_row<kFormat>(w, row);
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTiles * 16; i += kThreads) shared.bad[i] = 0;
  float sums[kTiles][4] = {};
  bool bad[kTiles][2] = {};
  C next[kTiles][2];
  const auto load = [&](int chunk) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      next[tile][0].load(rows[tile][0], scales[tile][0], chunk, t);
      next[tile][1].load(rows[tile][1], scales[tile][1], chunk, t);
    }
  };
  if (warp < chunks) load(warp);
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    C now[kTiles][2];
    float chunk_sums[kTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      now[tile][0] = next[tile][0], now[tile][1] = next[tile][1];
      bad[tile][0] |= now[tile][0].is_bad(), bad[tile][1] |= now[tile][1].is_bad();
    }
    if (chunk + kWarps < chunks) load(chunk + kWarps);
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      std::uint32_t b[kParts][4];
      load_tokens<C, kParts>(x == nullptr ? nullptr : x + chunk * C::kColumns + C::column(unit, t), b);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        std::uint32_t low[4], high[4];
        now[tile][0].pairs(unit, low);
        now[tile][1].pairs(unit, high);
        float(&into)[4] = C::kScaled ? chunk_sums[tile] : sums[tile];
#pragma unroll
        for (int part = kParts - 1; part >= 0; --part) {
          mma_bf16(into, low[0], high[0], low[1], high[1], b[part][0], b[part][1]);
          mma_bf16(into, low[2], high[2], low[3], high[3], b[part][2], b[part][3]);
        }
      }
    }
    if constexpr (C::kScaled) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[tile][i] = fmaf(float_at(scales[tile][i / 2] + chunk * 4), chunk_sums[tile][i], sums[tile][i]);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.sums[warp][t * 2 + i % 2][tile * 16 + i / 2 * 8 + g] = sums[tile][i];
    if (bad[tile][0]) shared.bad[tile * 16 + g] = 1;
    if (bad[tile][1]) shared.bad[tile * 16 + 8 + g] = 1;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kTiles * 16; i += kThreads) {
    const int token = i / (kTiles * 16), row = i % (kTiles * 16);
    if (token >= tokens || first_row + row >= w.rows) continue;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += shared.sums[other][token][row];
    if constexpr (kFormat == QuantFormat::fp8_channel) sum *= float_at(scales_of_row<kFormat>(w, first_row + row));
    sum *= C::kFactor * w.scale;
    y(token)[first_row + row] = shared.bad[row] != 0 ? __uint_as_float(0x7fc00000u) : sum;
  }
}

// As many as have registers without spilling.
constexpr int blocks_a_multiprocessor(QuantFormat format, int tiles, int parts) {
  if (tiles == 1 && parts == 1) return format == QuantFormat::nvfp4 ? 3 : 2;
  return 1;
}

template <QuantFormat kFormat, int kParts, int kTiles>
__global__ void __launch_bounds__(kThreads, blocks_a_multiprocessor(kFormat, kTiles, kParts))
    linear_few_kernel(DeviceWeight w, const float* x, float* y, std::int64_t tokens) {
  __shared__ SharedSums<kTiles> shared;
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens, first_row = std::int64_t{blockIdx.x} * 16 * kTiles;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first_token), static_cast<long long>(kTokens)));
  const int token = static_cast<int>(threadIdx.x) % 32 / 4;
  few_rows<kFormat, kParts, kTiles>(w, first_row, token < count ? x + (first_token + token) * w.cols : nullptr, count, shared,
                                    [&](int t) { return y + (first_token + t) * w.rows; });
}

template <QuantFormat kFormat, int kParts, int kTiles>
__global__ void __launch_bounds__(kThreads, blocks_a_multiprocessor(kFormat, kTiles, kParts))
    linear_experts_few_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                              LinearExpertsArgs::Rows rows, const float* x, float* y) {
  __shared__ SharedSums<kTiles> shared;
  __shared__ ExpertTile shared_tile;
  const ExpertTile tile = find_expert_tile(begin, experts.count, kTokens, static_cast<int>(blockIdx.y), shared_tile);
  if (tile.expert < 0) return;
  const DeviceWeight w = expert_weight(experts, tile.expert);
  const int token = static_cast<int>(threadIdx.x) % 32 / 4;
  const float* own = nullptr;
  if (token < tile.count) {
    const std::int64_t slot = tile.first + token;
    own = x + (rows == LinearExpertsArgs::Rows::by_token ? std::int64_t{tokens[slot]} : slot) * w.cols;
  }
  few_rows<kFormat, kParts, kTiles>(w, std::int64_t{blockIdx.x} * 16 * kTiles, own, tile.count, shared,
                                    [&](int t) { return y + (tile.first + t) * w.rows; });
}

// More rows a block when there are more tokens to read for each.
template <class Body>
void for_shape(Precision precision, std::int64_t tokens, Body&& body) {
  if (precision == Precision::exact) return body.template operator()<3, 1>();
  if (tokens <= 2) return body.template operator()<1, 1>();
  body.template operator()<1, 2>();
}

}  // namespace

bool fits_few_rows(const Weight& w) { return has_chunks(w.format) && w.cols % kColumnsMultiple == 0; }

void run_linear_few(const LinearArgs& args, Lane& lane) {
  const std::int64_t tokens = args.x.dim(0);
  for_shape(args.precision, tokens, [&]<int kParts, int kTiles>() {
    const dim3 grid(blocks_for(args.w.rows, 16 * kTiles), blocks_for(tokens, kTokens));
    for_chunk_format(args.w.format, [&]<QuantFormat kFormat>() {
      linear_few_kernel<kFormat, kParts, kTiles>
          <<<grid, kThreads, 0, stream_of(lane)>>>(device_weight(args.w), args.x.f32(), args.y.f32(), tokens);
    });
  });
}

void run_linear_experts_few(const LinearExpertsArgs& args, Lane& lane) {
  const DeviceExperts experts = device_experts(args.experts);
  const std::int64_t slots = args.y.dim(0);
  for_shape(args.precision, slots / 4, [&]<int kParts, int kTiles>() {
    const dim3 grid(blocks_for(experts.first.rows, 16 * kTiles),
                    static_cast<unsigned>(most_expert_tiles(slots, experts.count, kTokens)));
    for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
      linear_experts_few_kernel<kFormat, kParts, kTiles><<<grid, kThreads, 0, stream_of(lane)>>>(
          experts, args.slots.begin.i32(), args.slots.tokens.i32(), args.rows, args.x.f32(), args.y.f32());
    });
  });
}

}  // namespace reckoner::cuda
