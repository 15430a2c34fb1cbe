// linear and linear_experts for few tokens, where reading the weights is all the work: they stream through registers once, become BF16
// pairs there, and are the large operand of a matrix instruction whose small one holds eight tokens. The warps of a block share the columns
// of a few rows; their sums are added in order. In `exact` the activations are three BF16 numbers each, which lose nothing.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/rounded.cuh"

namespace reckoner::cuda {
namespace {

constexpr std::int64_t kColumnsMultiple = 128;

// As many as shared memory has room for on every device, and at most as many as hide the memory's latency.
constexpr int kStages = 4;

template <class C, int kWarps>
struct SharedRows {
  union {
    Stage<C> stages[kWarps][kStages];
    struct {
      float sums[kWarps][kTokens][kTiles * 16 + 4];
      int bad[kTiles * 16];  // rows with a code that is NaN
    } results;
  };
  std::uint32_t scale_pairs[256];
};

// y[t][row] for the rows [first_row, first_row + 16 kTiles) that exist. `x` is the row of this lane's token (lane / 4) or null; `y(t)` the
// place of token t's. `x_is_there` is called, and x not read before, once the first weights are on their way.
template <QuantFormat kFormat, int kParts, int kWarps, class Ready, class Output>
__device__ void few_rows(const DeviceWeight& w, std::int64_t first_row, const void* x, int tokens,
                         SharedRows<Chunk<kFormat>, kWarps>& shared, const Ready& x_is_there, const Output& y) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = kStages;
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
  const auto fetch = [&](int chunk, Stage<C>& stage) {
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
  x_is_there();
  if constexpr (kFormat == QuantFormat::nvfp4) {
    for (unsigned code = threadIdx.x; code < 256; code += kWarps * 32) shared.scale_pairs[code] = C::scale_pair(code);
  }
  __syncthreads();
  float sums[kTiles][4] = {};
  bool bad[kTiles][2] = {};
  int at = 0;
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    const int ahead = chunk + (kDepth - 1) * kWarps;
    __syncwarp();
    if (ahead < chunks) fetch(ahead, shared.stages[warp][(at + kDepth - 1) % kDepth]);
    commit_copies();
    TokenColumns<C, kParts> columns;
    columns.load(x, chunk, t);
    wait_for_copies<kDepth - 1>();
    __syncwarp();
    const Stage<C>& stage = shared.stages[warp][at];
    at = (at + 1) % kDepth;
    C now[kTiles][2];
    float chunk_sums[kTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int plane = 0; plane < C::kPlanes; ++plane) now[tile][half].codes[plane] = stage.codes[tile][plane][g + half * 8][t];
        now[tile][half].take_scales(stage.scales[tile][g + half * 8], t, shared.scale_pairs);
        bad[tile][half] |= now[tile][half].is_bad();
      }
    }
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      std::uint32_t b[kParts][4];
      columns.pairs(unit, b);
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
  let_next_begin();
  __syncthreads();
  auto& results = shared.results;
  for (int i = static_cast<int>(threadIdx.x); i < kTiles * 16; i += kWarps * 32) results.bad[i] = 0;
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) results.sums[warp][t * 2 + i % 2][tile * 16 + i / 2 * 8 + g] = sums[tile][i];
    if (bad[tile][0]) results.bad[tile * 16 + g] = 1;
    if (bad[tile][1]) results.bad[tile * 16 + 8 + g] = 1;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kTiles * 16; i += kWarps * 32) {
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

// Blocks of eight warps that a multiprocessor should hold.
constexpr int wanted_blocks(QuantFormat format, int parts) { return parts > 1 ? 2 : format == QuantFormat::nvfp4 ? 4 : 3; }

// Where the activations are: as they came (`exact`), rounded by another kernel, or to be rounded by each block into its shared memory.
enum class Tokens { plain, rounded, rounded_here };

template <QuantFormat kFormat, int kParts, int kWarps, Tokens kSource>
__global__ void __launch_bounds__(kWarps * 32, wanted_blocks(kFormat, kParts) * 8 / kWarps)
    linear_few_kernel(DeviceWeight w, const void* x, float* y, std::int64_t tokens) {
  using C = Chunk<kFormat>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<SharedRows<C, kWarps>*>(memory);
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens, first_row = std::int64_t{blockIdx.x} * 16 * kTiles;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first_token), static_cast<long long>(kTokens)));
  const int token = static_cast<int>(threadIdx.x) % 32 / 4;
  const std::int64_t row_bytes = w.cols * (kSource == Tokens::plain ? 4 : 2);
  const auto* rows = static_cast<const std::byte*>(x) + first_token * row_bytes;
  auto* const rounded = reinterpret_cast<uint4*>(memory + sizeof(shared));
  if constexpr (kSource == Tokens::rounded_here) rows = reinterpret_cast<const std::byte*>(rounded);
  few_rows<kFormat, kParts, kWarps>(
      w, first_row, token < count ? rows + token * row_bytes : nullptr, count, shared,
      [&] {
        wait_for_previous();
        if constexpr (kSource == Tokens::rounded_here) {
          for (std::int64_t i = threadIdx.x; i < count * w.cols / 8; i += kWarps * 32)
            rounded[i] = rounded_piece<C>(static_cast<const float*>(x), i);  // few_rows() waits for all threads before it reads them
        }
      },
      [&](int t) { return y + (first_token + t) * w.rows; });
}

template <QuantFormat kFormat, int kParts, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, (kParts > 1 ? 2 : 3) * 8 / kWarps)
    linear_experts_few_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                              LinearExpertsArgs::Rows rows, const std::byte* x, float* y) {
  wait_for_previous();
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<SharedRows<Chunk<kFormat>, kWarps>*>(memory);
  __shared__ ExpertTile shared_tile;
  const ExpertTile tile = find_expert_tile(begin, experts.count, kTokens, static_cast<int>(blockIdx.y), shared_tile);
  if (tile.expert < 0) return;
  const DeviceWeight w = expert_weight(experts, tile.expert);
  const int token = static_cast<int>(threadIdx.x) % 32 / 4;
  const std::byte* own = nullptr;
  if (token < tile.count) {
    const std::int64_t slot = tile.first + token;
    own = x + (rows == LinearExpertsArgs::Rows::by_token ? std::int64_t{tokens[slot]} : slot) * w.cols * (kParts > 1 ? 4 : 2);
  }
  few_rows<kFormat, kParts, kWarps>(
      w, std::int64_t{blockIdx.x} * 16 * kTiles, own, tile.count, shared, [] {}, [&](int t) { return y + (tile.first + t) * w.rows; });
}

// Fewer warps where each would have too few columns to keep a stream going.
template <class Body>
void for_shape(Precision precision, const Weight& w, Body&& body) {
  const bool narrow = w.cols <= 2048;
  if (precision == Precision::exact && narrow) return body.template operator()<3, 4>();
  if (precision == Precision::exact) return body.template operator()<3, 8>();
  if (narrow) return body.template operator()<1, 4>();
  body.template operator()<1, 8>();
}

// Activations that every block rounds for itself, which saves a launch.
constexpr std::int64_t kMostHereBytes = 32 << 10;
bool rounds_here(const LinearArgs& args) { return args.x.dim(0) <= 2 && args.x.shape.elements() * 2 <= kMostHereBytes; }

template <QuantFormat kFormat, int kParts, int kWarps, Tokens kSource>
void launch_linear(const LinearArgs& args, const void* x, std::int64_t more_shared, Lane& lane) {
  constexpr auto kShared = static_cast<std::int64_t>(sizeof(SharedRows<Chunk<kFormat>, kWarps>));
  static_assert(kShared + (kSource == Tokens::rounded_here ? kMostHereBytes : 0) <= kPortableSharedBytes);
  const std::int64_t tokens = args.x.dim(0);
  const dim3 grid(blocks_for(args.w.rows, 16 * kTiles), blocks_for(tokens, kTokens));
  allow_shared(linear_few_kernel<kFormat, kParts, kWarps, kSource>, kShared + more_shared);
  launch(linear_few_kernel<kFormat, kParts, kWarps, kSource>, grid, kWarps * 32, kShared + more_shared, stream_of(lane),
         device_weight(args.w), x, args.y.f32(), tokens);
}

}  // namespace

bool fits_few_rows(const Weight& w) { return has_chunks(w.format) && w.cols % kColumnsMultiple == 0; }

std::int64_t few_rows_shared_bytes(const Key& key) {
  std::int64_t bytes = 0;
  for_chunk_format(key.format, [&]<QuantFormat kFormat>() {
    bytes = sizeof(SharedRows<Chunk<kFormat>, 8>) + (key.precision == Precision::fast ? kMostHereBytes : sizeof(ExpertTile));
  });
  return bytes;
}

std::int64_t linear_few_workspace(const LinearArgs& args) {
  if (args.precision == Precision::exact) return 0;
  return std::min(args.x.dim(0), part_tokens(args.w.cols)) * args.w.cols * 2;
}

void run_linear_few(const LinearArgs& args, Lane& lane) {
  for_shape(args.precision, args.w, [&]<int kParts, int kWarps>() {
    for_chunk_format(args.w.format, [&]<QuantFormat kFormat>() {
      if constexpr (kParts > 1) {
        launch_linear<kFormat, kParts, kWarps, Tokens::plain>(args, args.x.data, 0, lane);
      } else {
        if (rounds_here(args))
          return launch_linear<kFormat, kParts, kWarps, Tokens::rounded_here>(args, args.x.data, args.x.shape.elements() * 2, lane);
        const std::int64_t tokens = args.x.dim(0), part = part_tokens(args.w.cols);
        for (std::int64_t first = 0; first < tokens; first += part) {
          LinearArgs some = args;
          some.x = args.x.rows(first, std::min(part, tokens - first));
          some.y = args.y.rows(first, std::min(part, tokens - first));
          round_rows<kFormat>(some.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), some.x.shape.elements(), stream_of(lane));
          launch_linear<kFormat, kParts, kWarps, Tokens::rounded>(some, lane.workspace, 0, lane);
        }
      }
    });
  });
}

std::int64_t linear_experts_few_workspace(const LinearExpertsArgs& args) {
  return args.precision == Precision::exact ? 0 : args.x.shape.elements() * 2;
}

void run_linear_experts_few(const LinearExpertsArgs& args, Lane& lane) {
  const DeviceExperts experts = device_experts(args.experts);
  const std::int64_t slots = args.y.dim(0);
  for_shape(args.precision, args.experts.front(), [&]<int kParts, int kWarps>() {
    const dim3 grid(blocks_for(experts.first.rows, 16 * kTiles), static_cast<unsigned>(most_expert_tiles(slots, experts.count, kTokens)));
    for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
      constexpr auto kShared = static_cast<std::int64_t>(sizeof(SharedRows<Chunk<kFormat>, kWarps>));
      static_assert(kShared + 16 <= kPortableSharedBytes);
      allow_shared(linear_experts_few_kernel<kFormat, kParts, kWarps>, kShared);
      const std::byte* x = args.x.data;
      if constexpr (kParts == 1) {
        round_rows<kFormat>(args.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), args.x.shape.elements(), stream_of(lane));
        x = lane.workspace;
      }
      launch(linear_experts_few_kernel<kFormat, kParts, kWarps>, grid, kWarps * 32, kShared, stream_of(lane), experts,
             args.slots.begin.i32(), args.slots.tokens.i32(), args.rows, x, args.y.f32());
    });
  });
}

}  // namespace reckoner::cuda
