// linear and linear_experts for many tokens, in `fast`: tiles of 128 tokens by 128 rows of the weight go through shared memory in four
// stages, the weight as it is stored; a warp decodes its operands in registers, so that no copy of the weight in BF16 is ever written. The
// activations are rounded to BF16 once, in the order in which the codes come out.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/rounded.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kTile = 128;     // tokens, and rows of the weight
constexpr int kColumns = 64;   // a stage
constexpr int kThreads = 128;  // four warps, 64 x 64 each
constexpr int kMTiles = 4, kNTiles = 8;

// ---- the weight's side of a stage: 64 columns of 128 rows. Lane t of a quad takes the columns 16 t to 16 t + 15: two units ----

template <QuantFormat kFormat>
struct WeightStage;

template <>
struct WeightStage<QuantFormat::nvfp4> {
  static constexpr int kStages = 4;
  uint2 codes[kTile][4];
  std::uint32_t scales[kTile];

  // Thread i fetches row i.
  __device__ void fetch(const std::byte* row, const std::byte* scale_row, int stage) {
    const int own = static_cast<int>(threadIdx.x);
    copy_async(&codes[own][0], row + stage * 32, true);
    copy_async(&codes[own][2], row + stage * 32 + 16, true);
    copy_few_async<4>(&scales[own], scale_row + stage * 4);
  }
  struct Operand {
    uint2 codes;
    std::uint32_t scale;
    __device__ void pairs(int unit, std::uint32_t (&out)[4]) const {
      Chunk<QuantFormat::nvfp4>::decode_e2m1(unit == 0 ? codes.x : codes.y, scale, out);
    }
  };
  __device__ Operand operand(int row, int t, const std::uint32_t* table) const {
    return {.codes = codes[row][t], .scale = table[reinterpret_cast<const std::uint8_t*>(&scales[row])[t]]};
  }
};

template <>
struct WeightStage<QuantFormat::bf16> {
  static constexpr int kStages = 3;
  uint4 codes[kTile][8];

  __device__ void fetch(const std::byte* row, const std::byte*, int stage) {
    const int own = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < 8; ++i) copy_async(&codes[own][i ^ (own & 7)], row + stage * 128 + i * 16, true);
  }
  struct Operand {
    uint4 codes[2];
    __device__ void pairs(int unit, std::uint32_t (&out)[4]) const {
      out[0] = codes[unit].x, out[1] = codes[unit].y, out[2] = codes[unit].z, out[3] = codes[unit].w;
    }
  };
  __device__ Operand operand(int row, int t, const std::uint32_t*) const {
    return {.codes = {codes[row][2 * t ^ (row & 7)], codes[row][(2 * t + 1) ^ (row & 7)]}};
  }
};

template <QuantFormat kFormat>
struct SharedTile {
  using W = WeightStage<kFormat>;
  uint4 x[W::kStages][kTile][8];  // piece i of a row lies at i ^ (row % 8): what a warp reads at once is in different banks
  W w[W::kStages];
  std::uint32_t scale_pairs[256];
};

// y[t][row] for 128 rows from first_row on and `count` tokens. `x_row(t)` gives token t's place among the rounded rows, `y_row(t)` its y.
template <QuantFormat kFormat, class Input, class Output>
__device__ void many_rows(const DeviceWeight& w, std::int64_t first_row, const std::uint16_t* x, const Input& x_row, int count,
                          SharedTile<kFormat>& shared, const Output& y_row) {
  using W = WeightStage<kFormat>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int first_m = warp / 2 * 64, first_n = warp % 2 * 64;
  const std::int64_t own_row = min(static_cast<long long>(first_row + thread), static_cast<long long>(w.rows - 1));
  const std::byte* weight_row = w.data + own_row * w.row_bytes;
  const std::byte* scale_row = scales_of_row<kFormat>(w, own_row);
  const std::uint16_t* inputs[8];  // this thread fetches piece thread % 8 of the rows thread / 8 + 16 i
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int token = thread / 8 + 16 * i;
    inputs[i] = x + x_row(token < count ? token : 0) * w.cols + thread % 8 * 8;
  }
  if constexpr (kFormat == QuantFormat::nvfp4) {
    for (int code = thread; code < 256; code += kThreads)
      shared.scale_pairs[code] = Chunk<kFormat>::scale_pair(static_cast<std::uint32_t>(code));
  }
  const int stages = static_cast<int>(w.cols / kColumns);
  const auto fetch = [&](int stage) {
    const int at = stage % W::kStages;
    shared.w[at].fetch(weight_row, scale_row, stage);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = thread / 8 + 16 * i;
      copy_async(&shared.x[at][token][thread % 8 ^ (token & 7)], inputs[i] + stage * kColumns, token < count);
    }
  };
#pragma unroll
  for (int i = 0; i < W::kStages - 1; ++i) {
    if (i < stages) fetch(i);
    commit_copies();
  }
  float sums[kMTiles][kNTiles][4] = {};
  for (int stage = 0; stage < stages; ++stage) {
    wait_for_copies<W::kStages - 2>();
    __syncthreads();
    if (stage + W::kStages - 1 < stages) fetch(stage + W::kStages - 1);
    commit_copies();
    const int at = stage % W::kStages;
    if (first_m >= count) continue;
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      uint4 low[kMTiles], high[kMTiles];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        const int row = first_m + m * 16 + g;
        low[m] = shared.x[at][row][(2 * t + unit) ^ (row & 7)];
        high[m] = shared.x[at][row + 8][(2 * t + unit) ^ (row & 7)];
      }
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const int row = first_n + n * 8 + g;
        const typename W::Operand operand = shared.w[at].operand(row, t, shared.scale_pairs);
        std::uint32_t b[4];
        operand.pairs(unit, b);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          mma_bf16(sums[m][n], low[m].x, high[m].x, low[m].y, high[m].y, b[0], b[1]);
          mma_bf16(sums[m][n], low[m].z, high[m].z, low[m].w, high[m].w, b[2], b[3]);
        }
      }
    }
  }
  const float factor = Chunk<kFormat>::kFactor * w.scale;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first_m + m * 16 + half * 8 + g;
      if (token >= count) continue;
      float* y = y_row(token);
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = first_n + n * 8 + t * 2 + i;
          if (first_row + row >= w.rows) continue;
          y[first_row + row] = sums[m][n][half * 2 + i] * factor;
        }
      }
    }
  }
}

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2) linear_many_kernel(DeviceWeight w, const std::uint16_t* x, float* y, std::int64_t tokens) {
  begin_kernel();
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<SharedTile<kFormat>*>(memory);
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first), static_cast<long long>(kTile)));
  many_rows<kFormat>(
      w, std::int64_t{blockIdx.y} * kTile, x, [&](int t) { return first + t; }, count, shared,
      [&](int t) { return y + (first + t) * w.rows; });
}

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2)
    linear_experts_many_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                               LinearExpertsArgs::Rows rows, const std::uint16_t* x, float* y) {
  begin_kernel();
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<SharedTile<kFormat>*>(memory);
  __shared__ ExpertTile shared_tile;
  const ExpertTile tile = find_expert_tile(begin, experts.count, kTile, static_cast<int>(blockIdx.y), shared_tile);
  if (tile.expert < 0) return;
  const DeviceWeight w = expert_weight(experts, tile.expert);
  many_rows<kFormat>(
      w, std::int64_t{blockIdx.x} * kTile, x,
      [&](int t) {
        return rows == LinearExpertsArgs::Rows::by_token ? std::int64_t{tokens[tile.first + t]} : std::int64_t{tile.first + t};
      },
      tile.count, shared, [&](int t) { return y + (tile.first + t) * w.rows; });
}

template <class Body>
void for_tile_format(QuantFormat format, Body&& body) {
  if (format == QuantFormat::bf16) body.template operator()<QuantFormat::bf16>();
  if (format == QuantFormat::nvfp4) body.template operator()<QuantFormat::nvfp4>();
}

template <QuantFormat kFormat>
constexpr std::int64_t kSharedBytes = sizeof(SharedTile<kFormat>);

}  // namespace

bool fits_many_rows(const Weight& w) { return (w.format == QuantFormat::bf16 || w.format == QuantFormat::nvfp4) && w.cols % kColumns == 0; }

std::int64_t many_rows_shared_bytes(const Key& key) {
  std::int64_t bytes = 0;
  if (key.precision == Precision::exact) return bytes;
  for_tile_format(key.format, [&]<QuantFormat kFormat>() { bytes = kSharedBytes<kFormat> + sizeof(ExpertTile); });
  return bytes;
}

std::int64_t linear_many_workspace(const LinearArgs& args) { return 2 * args.w.cols * std::min(args.x.dim(0), part_tokens(args.w.cols)); }

void run_linear_many(const LinearArgs& args, Lane& lane) {
  auto* rounded = reinterpret_cast<std::uint16_t*>(lane.workspace);
  const std::int64_t tokens = args.x.dim(0), part = part_tokens(args.w.cols);
  for_tile_format(args.w.format, [&]<QuantFormat kFormat>() {
    static_assert(kSharedBytes<kFormat> <= kPortableSharedBytes);
    allow_shared(linear_many_kernel<kFormat>, kSharedBytes<kFormat>);
    for (std::int64_t first = 0; first < tokens; first += part) {
      const std::int64_t some = std::min(part, tokens - first);
      round_rows<kFormat>(args.x.f32() + first * args.w.cols, rounded, some * args.w.cols, stream_of(lane));
      const dim3 grid(blocks_for(some, kTile), blocks_for(args.w.rows, kTile));
      launch(linear_many_kernel<kFormat>, grid, kThreads, kSharedBytes<kFormat>, stream_of(lane), device_weight(args.w), rounded,
             args.y.f32() + first * args.w.rows, some);
    }
  });
}

std::int64_t linear_experts_many_workspace(const LinearExpertsArgs& args) { return 2 * args.x.shape.elements(); }

void run_linear_experts_many(const LinearExpertsArgs& args, Lane& lane) {
  auto* rounded = reinterpret_cast<std::uint16_t*>(lane.workspace);
  const DeviceExperts experts = device_experts(args.experts);
  const dim3 grid(blocks_for(experts.first.rows, kTile), static_cast<unsigned>(most_expert_tiles(args.y.dim(0), experts.count, kTile)));
  for_tile_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
    static_assert(kSharedBytes<kFormat> <= kPortableSharedBytes);
    allow_shared(linear_experts_many_kernel<kFormat>, kSharedBytes<kFormat>);
    round_rows<kFormat>(args.x.f32(), rounded, args.x.shape.elements(), stream_of(lane));
    launch(linear_experts_many_kernel<kFormat>, grid, kThreads, kSharedBytes<kFormat>, stream_of(lane), experts, args.slots.begin.i32(),
           args.slots.tokens.i32(), args.rows, rounded, args.y.f32());
  });
}

}  // namespace reckoner::cuda
