// linear and linear_experts for few tokens, where reading the weights is all the work: they stream through registers once, become BF16
// pairs there, and are the large operand of a matrix instruction whose small one holds eight tokens. The warps of a block share the columns
// of a few rows; their sums are added in order. In `exact` the activations are three BF16 numbers each, which lose nothing.
#include "kernels/cuda/common/async.cuh"
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

// A lane's columns of its token (lane / 4), as they come: zeros without one.
template <class C>
struct TokenColumns {
  float4 values[C::kUnits][2];
  __device__ void load(const float* x, int chunk, int t) {
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      values[unit][0] = values[unit][1] = make_float4(0, 0, 0, 0);
      if (x == nullptr) continue;
      const auto* at = reinterpret_cast<const float4*>(x + chunk * C::kColumns + C::column(unit, t));
      values[unit][0] = at[0], values[unit][1] = at[1];
    }
  }
  template <int kParts>
  __device__ void pairs(int unit, std::uint32_t (&out)[kParts][4]) const {
    const float4 low = values[unit][0], high = values[unit][1];
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t parts[kParts];
      split_pair<kParts>(all[C::first(i)], all[C::second(i)], parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) out[part][i] = parts[part];
    }
  }
};

// Chunks of a warp's rows on their way into registers: sixteen rows a tile.
template <class C, int kTiles>
struct Stage {
  uint4 codes[kTiles][C::kPlanes][16][4];
  std::byte scales[kTiles][16][C::kScaleBytes > 0 ? C::kScaleBytes : 1];
};

// As many as shared memory has room for on every device, and at most as many as hide the memory's latency.
template <class C, int kTiles>
constexpr int kStages = C::kPlanes * kTiles == 4 ? 2 : 4;

template <class C, int kTiles>
union SharedRows {
  Stage<C, kTiles> stages[kWarps][kStages<C, kTiles>];
  struct {
    float sums[kWarps][kTokens][kTiles * 16 + 4];
    int bad[kTiles * 16];  // rows with a code or scale that is NaN
  } results;
};

// y[t][row] for the rows [first_row, first_row + 16 kTiles) that exist. `x` is the row of this lane's token (lane / 4) or null; `y(t)` the
// place of token t's.
template <QuantFormat kFormat, int kParts, int kTiles, class Output>
__device__ void few_rows(const DeviceWeight& w, std::int64_t first_row, const float* x, int tokens,
                         SharedRows<Chunk<kFormat>, kTiles>& shared, const Output& y) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = kStages<C, kTiles>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int chunks = static_cast<int>(w.cols / C::kColumns);
  const auto clamped = [&](int row) { return min(static_cast<long long>(first_row + row), static_cast<long long>(w.rows - 1)); };
  const std::byte* rows[kTiles][2];
  const std::byte* scales[kTiles];  // of the row that this lane fetches them for
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    rows[tile][0] = w.data + clamped(tile * 16 + g) * w.row_bytes + t * 16;
    rows[tile][1] = w.data + clamped(tile * 16 + 8 + g) * w.row_bytes + t * 16;
    scales[tile] = scales_of_row<kFormat>(w, clamped(tile * 16 + lane % 16));
  }
  const auto fetch = [&](int chunk, Stage<C, kTiles>& stage) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        const int at = (chunk * C::kPlanes + plane) * 64;
        copy_async(&stage.codes[tile][plane][g][t], rows[tile][0] + at, true);
        copy_async(&stage.codes[tile][plane][g + 8][t], rows[tile][1] + at, true);
      }
      if constexpr (C::kScaleBytes > 0) {
        if (lane < 16) copy_few_async<C::kScaleBytes>(stage.scales[tile][lane], scales[tile] + chunk * C::kScaleBytes);
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i) {
    if (warp + i * kWarps < chunks) fetch(warp + i * kWarps, shared.stages[warp][i]);
    commit_copies();
  }
  float sums[kTiles][4] = {};
  bool bad[kTiles][2] = {};
  TokenColumns<C> next;
  if (warp < chunks) next.load(x, warp, t);
  int at = 0;
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    const int ahead = chunk + (kDepth - 1) * kWarps;
    __syncwarp();
    if (ahead < chunks) fetch(ahead, shared.stages[warp][(at + kDepth - 1) % kDepth]);
    commit_copies();
    const TokenColumns<C> columns = next;
    if (chunk + kWarps < chunks) next.load(x, chunk + kWarps, t);
    wait_for_copies<kDepth - 1>();
    __syncwarp();
    const Stage<C, kTiles>& stage = shared.stages[warp][at];
    at = (at + 1) % kDepth;
    C now[kTiles][2];
    float chunk_sums[kTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int plane = 0; plane < C::kPlanes; ++plane) now[tile][half].codes[plane] = stage.codes[tile][plane][g + half * 8][t];
        now[tile][half].take_scales(stage.scales[tile][g + half * 8], t);
        bad[tile][half] |= now[tile][half].is_bad();
      }
    }
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      std::uint32_t b[kParts][4];
      columns.template pairs<kParts>(unit, b);
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
        for (int i = 0; i < 4; ++i) sums[tile][i] = fmaf(now[tile][i / 2].scale, chunk_sums[tile][i], sums[tile][i]);
      }
    }
  }
  __syncthreads();
  auto& results = shared.results;
  for (int i = static_cast<int>(threadIdx.x); i < kTiles * 16; i += kThreads) results.bad[i] = 0;
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) results.sums[warp][t * 2 + i % 2][tile * 16 + i / 2 * 8 + g] = sums[tile][i];
    if (bad[tile][0]) results.bad[tile * 16 + g] = 1;
    if (bad[tile][1]) results.bad[tile * 16 + 8 + g] = 1;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kTiles * 16; i += kThreads) {
    const int token = i / (kTiles * 16), row = i % (kTiles * 16);
    if (token >= tokens || first_row + row >= w.rows) continue;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += results.sums[other][token][row];
    if constexpr (kFormat == QuantFormat::fp8_channel) sum *= float_at(scales_of_row<kFormat>(w, first_row + row));
    sum *= C::kFactor * w.scale;
    y(token)[first_row + row] = results.bad[row] != 0 ? __uint_as_float(0x7fc00000u) : sum;
  }
}

template <QuantFormat kFormat, int kParts, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles * kParts == 1 ? 2 : 1)
    linear_few_kernel(DeviceWeight w, const float* x, float* y, std::int64_t tokens) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedRows<Chunk<kFormat>, kTiles>*>(memory);
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens, first_row = std::int64_t{blockIdx.x} * 16 * kTiles;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first_token), static_cast<long long>(kTokens)));
  const int token = static_cast<int>(threadIdx.x) % 32 / 4;
  few_rows<kFormat, kParts, kTiles>(w, first_row, token < count ? x + (first_token + token) * w.cols : nullptr, count, shared,
                                    [&](int t) { return y + (first_token + t) * w.rows; });
}

template <QuantFormat kFormat, int kParts, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles * kParts == 1 ? 2 : 1)
    linear_experts_few_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                              LinearExpertsArgs::Rows rows, const float* x, float* y) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedRows<Chunk<kFormat>, kTiles>*>(memory);
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

// More rows a block where there are more tokens to read for each, or few columns, of which a block cannot keep much under way; not where
// that would leave multiprocessors idle. What one token gets does not depend on it.
template <class Body>
void for_shape(Precision precision, const Weight& w, std::int64_t tokens, Body&& body) {
  static_cast<void>(tokens);
  const bool wide = w.rows >= 4096;
  if (precision == Precision::exact) return body.template operator()<3, 1>();
  if (wide) return body.template operator()<1, 2>();
  body.template operator()<1, 1>();
}

}  // namespace

bool fits_few_rows(const Weight& w) { return has_chunks(w.format) && w.cols % kColumnsMultiple == 0; }

void run_linear_few(const LinearArgs& args, Lane& lane) {
  const std::int64_t tokens = args.x.dim(0);
  for_shape(args.precision, args.w, tokens, [&]<int kParts, int kTiles>() {
    const dim3 grid(blocks_for(args.w.rows, 16 * kTiles), blocks_for(tokens, kTokens));
    for_chunk_format(args.w.format, [&]<QuantFormat kFormat>() {
      constexpr auto kShared = static_cast<std::int64_t>(sizeof(SharedRows<Chunk<kFormat>, kTiles>));
      static_assert(kShared <= kPortableSharedBytes);
      allow_shared(linear_few_kernel<kFormat, kParts, kTiles>, kShared);
      linear_few_kernel<kFormat, kParts, kTiles>
          <<<grid, kThreads, kShared, stream_of(lane)>>>(device_weight(args.w), args.x.f32(), args.y.f32(), tokens);
    });
  });
}

void run_linear_experts_few(const LinearExpertsArgs& args, Lane& lane) {
  const DeviceExperts experts = device_experts(args.experts);
  const std::int64_t slots = args.y.dim(0);
  for_shape(args.precision, args.experts.front(), slots / std::ssize(args.experts), [&]<int kParts, int kTiles>() {
    const dim3 grid(blocks_for(experts.first.rows, 16 * kTiles),
                    static_cast<unsigned>(most_expert_tiles(slots, experts.count, kTokens)));
    for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
      constexpr auto kShared = static_cast<std::int64_t>(sizeof(SharedRows<Chunk<kFormat>, kTiles>)) + 16;
      static_assert(kShared <= kPortableSharedBytes);
      allow_shared(linear_experts_few_kernel<kFormat, kParts, kTiles>, kShared);
      linear_experts_few_kernel<kFormat, kParts, kTiles><<<grid, kThreads, kShared, stream_of(lane)>>>(
          experts, args.slots.begin.i32(), args.slots.tokens.i32(), args.rows, args.x.f32(), args.y.f32());
    });
  });
}

}  // namespace reckoner::cuda
