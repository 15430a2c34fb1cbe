// gated_experts in `fast` for few tokens, where reading the weights bounds it: a tile is eight rows of gate and the same eight of up, the
// two halves of a matrix instruction's large operand, so that a lane ends with both. All tiles of all experts that have slots are one
// stream, of which each block takes an equal share; its warps share the columns and add up their sums in order.
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_list.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/rounded.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kRows = 8;         // of each of gate and up, a tile
constexpr int kMostListed = 32;  // expert tiles of a block
// Activations that each block rounds for itself, which saves a launch.
constexpr std::int64_t most_here_bytes(QuantFormat format) { return format == QuantFormat::nvfp4 ? 28 << 10 : 16 << 10; }

constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 6 : 4; }
constexpr int blocks_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 3 : 2; }

template <QuantFormat kFormat>
struct Shared {
  using C = Chunk<kFormat>;
  Stage<C> stages[kWarps][depth_of(kFormat)];
  float sums[2][kWarps][kTokens][2 * kRows + 4];
  std::uint32_t scale_pairs[256];
  ExpertList<kThreads, kMostListed> list;
};

struct Slots {
  const std::int32_t* begin;   // [experts + 1]
  const std::int32_t* tokens;  // [slots]
};

enum class Source { rounded, rounded_here };

// What the compiler makes room for in registers.
template <QuantFormat kFormat>
constexpr int least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return 2;
#else
  return blocks_of(kFormat);
#endif
}

template <QuantFormat kFormat, Source kSource>
__global__ void __launch_bounds__(kThreads, (least_blocks<kFormat>()))
    gated_experts_kernel(const __grid_constant__ DeviceExperts gate, const __grid_constant__ DeviceExperts up, Slots slots, const void* x,
                         int x_rows, float* y) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = depth_of(kFormat);
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kFormat>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int cols = static_cast<int>(gate.first.cols), rows = static_cast<int>(gate.first.rows);
  const int chunks = cols / C::kColumns, row_tiles = (rows + kRows - 1) / kRows;
  if constexpr (kFormat == QuantFormat::nvfp4) shared.scale_pairs[thread] = C::scale_pair(thread);
  wait_for_previous();
  const void* rounded = x;
  if constexpr (kSource == Source::rounded_here) {
    auto* here = reinterpret_cast<uint4*>(memory + sizeof(shared));
    constexpr int kAtOnce = 4;
    const int all = x_rows * cols / 8;
    for (int first = thread; first < all; first += kAtOnce * kThreads) {
      uint4 pieces[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads < all) pieces[i] = rounded_piece<C>(static_cast<const float*>(x), first + i * kThreads);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads < all) here[first + i * kThreads] = pieces[i];
      }
    }
    rounded = here;
  }
  int first = 0, end = 0;  // of the stream's tiles
  const int2 listed = list_expert_tiles<kThreads>(slots.begin, gate.count, kTokens, shared.list, [&](int all) {
    const int tiles = all * row_tiles, each = (tiles + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    first = min(static_cast<int>(blockIdx.x) * each, tiles), end = min(first + each, tiles);
    return make_int2(first / row_tiles, (end + row_tiles - 1) / row_tiles);
  });
  __syncthreads();
  if (first == end) return;

  // What is fetched next.
  const std::byte *low = nullptr, *high = nullptr, *scales = nullptr;
  int left = end - first, ahead = first / row_tiles - listed.x, ahead_row = first % row_tiles, ahead_chunk = warp, ahead_slot = 0;
  const auto aim = [&] {
    const int expert = shared.list.tiles[ahead].expert, row = min(ahead_row * kRows + g, rows - 1);
    low = gate.first.data + expert * gate.data_stride + row * gate.first.row_bytes + t * 16;
    high = up.first.data + expert * up.data_stride + row * gate.first.row_bytes + t * 16;
    if constexpr (C::kScaleBytes > 0) {
      const int scaled = min(ahead_row * kRows + lane % kRows, rows - 1);
      const DeviceExperts& of = lane < kRows ? gate : up;
      scales = scales_of_row<kFormat>(of.first, scaled) + expert * of.scales_stride;
    }
  };
  const auto fetch = [&] {
    if (left > 0) {
      Stage<C>& stage = shared.stages[warp][ahead_slot];
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        const int at = (ahead_chunk * C::kPlanes + plane) * 64;
        copy_async(&stage.codes[0][plane][g][t], low + at, true);
        copy_async(&stage.codes[0][plane][g + 8][t], high + at, true);
      }
      if constexpr (C::kScaleBytes > 0) {
        if (lane < 2 * kRows) copy_few_async<C::kScaleBytes>(stage.scales[0][lane], scales + ahead_chunk * C::kScaleBytes);
      }
      ahead_slot = ahead_slot == kDepth - 1 ? 0 : ahead_slot + 1;
      ahead_chunk += kWarps;
      if (ahead_chunk >= chunks) {
        ahead_chunk = warp;
        if (++ahead_row == row_tiles) ahead_row = 0, ++ahead;
        if (--left > 0) aim();
      }
    }
    commit_copies();
  };
  if (warp >= chunks) left = 0;  // nothing to do for this warp but to meet the others
  if (left > 0) aim();
#pragma unroll
  for (int i = 0; i < kDepth; ++i) fetch();

  int slot = 0, buffer = 0, listed_at = first / row_tiles - listed.x, row_tile = first % row_tiles;
  ExpertTile tile;
  const void* own = nullptr;  // the rounded row of this lane's token, lane / 4
  for (int at = first; at < end; ++at) {
    if (at == first || row_tile == 0) {
      tile = shared.list.tiles[listed_at++];
      own = g < tile.count ? static_cast<const std::uint16_t*>(rounded) + std::int64_t{slots.tokens[tile.first + g]} * cols : nullptr;
    }
    float sums[4] = {};
    bool bad[2] = {};
    for (int chunk = warp; chunk < chunks; chunk += kWarps) {
      TokenColumns<C, 1> columns;
      columns.load(own, chunk, t);
      wait_for_copies<kDepth - 1>();
      __syncwarp();
      const Stage<C>& stage = shared.stages[warp][slot];
      slot = slot == kDepth - 1 ? 0 : slot + 1;
      C now[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int plane = 0; plane < C::kPlanes; ++plane) now[half].codes[plane] = stage.codes[0][plane][g + half * 8][t];
        now[half].take_scales(stage.scales[0][g + half * 8], t, shared.scale_pairs);
        bad[half] |= now[half].is_bad();
      }
      __syncwarp();  // all lanes have read what the next copy overwrites
      fetch();
      float chunk_sums[4] = {};
#pragma unroll
      for (int unit = 0; unit < C::kUnits; ++unit) {
        std::uint32_t b[1][4], a_low[4], a_high[4];
        columns.pairs(unit, b);
        now[0].pairs(unit, a_low);
        now[1].pairs(unit, a_high);
        float(&into)[4] = C::kScaled ? chunk_sums : sums;
        mma_bf16(into, a_low[0], a_high[0], a_low[1], a_high[1], b[0][0], b[0][1]);
        mma_bf16(into, a_low[2], a_high[2], a_low[3], a_high[3], b[0][2], b[0][3]);
      }
      if constexpr (C::kScaled) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = fmaf(now[i / 2].scale, chunk_sums[i], sums[i]);
      }
    }
    if (at == end - 1) let_next_begin();
      // A row with a code that is NaN is NaN.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned quad = __ballot_sync(kAllLanes, bad[half]) >> (lane & ~3) & 15u;
      if (quad != 0) sums[2 * half] = sums[2 * half + 1] = __uint_as_float(0x7fc00000u);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.sums[buffer][warp][t * 2 + i % 2][i / 2 * kRows + g] = sums[i];
    __syncthreads();
    // Other warps each time.
    const int item = (thread + (at - first) % 4 * (kThreads / 4)) % kThreads, token = item / kRows, row = row_tile * kRows + item % kRows;
    if (token < tile.count && row < rows) {
      float gated = 0, upper = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        gated += shared.sums[buffer][other][token][item % kRows];
        upper += shared.sums[buffer][other][token][kRows + item % kRows];
      }
      if constexpr (kFormat == QuantFormat::fp8_channel) {
        gated *= float_at(scales_of_row<kFormat>(gate.first, row) + tile.expert * gate.scales_stride);
        upper *= float_at(scales_of_row<kFormat>(up.first, row) + tile.expert * up.scales_stride);
      }
      gated *= C::kFactor * gate.scale[tile.expert], upper *= C::kFactor * up.scale[tile.expert];
      y[std::int64_t{tile.first + token} * rows + row] = gated / (1.0f + expf(-gated)) * upper;
    }
    buffer ^= 1;
    if (++row_tile == row_tiles) row_tile = 0;
  }
}

std::int64_t here_bytes(const GatedExpertsArgs& args) { return args.x.shape.elements() * 2; }
bool rounds_here(const GatedExpertsArgs& args) { return here_bytes(args) <= most_here_bytes(args.gate.front().format); }

int multiprocessors() {
  int device = 0, count = 0;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return std::max(count, 1);
}

template <QuantFormat kFormat, Source kSource>
void launch_gated(const GatedExpertsArgs& args, const void* x, Lane& lane) {
  static_assert(sizeof(Shared<kFormat>) + most_here_bytes(kFormat) <= kPortableSharedBytes);
  const std::int64_t shared = static_cast<std::int64_t>(sizeof(Shared<kFormat>)) + (kSource == Source::rounded_here ? here_bytes(args) : 0);
  const std::int64_t row_tiles = blocks_for(args.gate.front().rows, kRows);
  const std::int64_t expert_tiles = most_expert_tiles(args.y.dim(0), std::ssize(args.gate), kTokens);
  // All at once; more where a block's share would not fit its list.
  const std::int64_t at_once = std::int64_t{multiprocessors()} * (kSource == Source::rounded_here ? 2 : blocks_of(kFormat));
  const std::int64_t blocks = std::max(std::min(at_once, expert_tiles * row_tiles), expert_tiles / (kMostListed - 2) + 1);
  allow_shared(gated_experts_kernel<kFormat, kSource>, shared);
  launch(gated_experts_kernel<kFormat, kSource>, static_cast<unsigned>(blocks), kThreads, shared, stream_of(lane),
         device_experts(args.gate), device_experts(args.up), {args.slots.begin.i32(), args.slots.tokens.i32()}, x,
         static_cast<int>(args.x.dim(0)), args.y.f32());
}

}  // namespace

bool fits_gated_experts_few(const GatedExpertsArgs& args) {
  const Weight& gate = args.gate.front();
  return has_chunks(gate.format) && gate.cols % 128 == 0 && gate.first_row == args.up.front().first_row;
}

std::int64_t gated_experts_shared_bytes(QuantFormat format) {
  std::int64_t bytes = 0;
  for_chunk_format(format, [&]<QuantFormat kFormat>() { bytes = sizeof(Shared<kFormat>) + most_here_bytes(kFormat); });
  return bytes;
}

std::int64_t gated_experts_few_workspace(const GatedExpertsArgs& args) { return rounds_here(args) ? 0 : here_bytes(args); }

void run_gated_experts_few(const GatedExpertsArgs& args, Lane& lane) {
  for_chunk_format(args.gate.front().format, [&]<QuantFormat kFormat>() {
    if (rounds_here(args)) return launch_gated<kFormat, Source::rounded_here>(args, args.x.data, lane);
    round_rows<kFormat>(args.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), args.x.shape.elements(), stream_of(lane));
    launch_gated<kFormat, Source::rounded>(args, lane.workspace, lane);
  });
}

}  // namespace reckoner::cuda
