// linear_experts in `fast` on rows of 256 columns, by slot: what a rank of eight has of each expert's way down. A warp has sixteen whole
// rows at a time, so that nothing is added up with others, and keeps its slots' activations in registers from one tile of an expert to the
// next. All tiles of all experts that have slots are one stream, of which each warp takes an equal share.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_list.cuh"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/weight_ring.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kColumns = 256;
constexpr int kRows = 16;
constexpr int kMostListed = 32;  // expert tiles of a block

constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 6 : 3; }
constexpr int blocks_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 5 : 4; }

template <QuantFormat kFormat>
struct Shared {
  Stage<Chunk<kFormat>> stages[kWarps][depth_of(kFormat)];
  std::uint32_t scale_pairs[256];
  ExpertList<kThreads, kMostListed> list;
};

// What the compiler makes room for in registers.
template <QuantFormat kFormat>
constexpr int least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return 4;
#else
  return blocks_of(kFormat);
#endif
}

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads, (least_blocks<kFormat>()))
    experts_down_kernel(const std::int32_t* begin, const float* x, float* y, const __grid_constant__ DeviceExperts experts) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = depth_of(kFormat), kChunks = kColumns / C::kColumns;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<Shared<kFormat>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int rows = static_cast<int>(experts.first.rows), row_tiles = (rows + kRows - 1) / kRows;
  if constexpr (kFormat == QuantFormat::nvfp4) {
    for (int code = thread; code < 256; code += kThreads) shared.scale_pairs[code] = C::scale_pair(code);
  }
  wait_for_previous();
  int first = 0, end = 0;  // of the stream's tiles, the warp's
  const int2 listed = list_expert_tiles<kThreads>(begin, experts.count, kTokens, shared.list, [&](int all) {
    const int tiles = all * row_tiles, warps = static_cast<int>(gridDim.x) * kWarps, each = (tiles + warps - 1) / warps;
    const int block_first = min(static_cast<int>(blockIdx.x) * kWarps * each, tiles), block_end = min(block_first + kWarps * each, tiles);
    first = min(block_first + warp * each, block_end), end = min(first + each, block_end);
    return make_int2(block_first / row_tiles, (block_end + row_tiles - 1) / row_tiles);
  });
  __syncthreads();

  // What is fetched next.
  RowPointers from{};
  int left = end - first, ahead = first / row_tiles - listed.x, ahead_row = first % row_tiles;
  const auto aim = [&] {
    const int expert = shared.list.tiles[ahead].expert, row = ahead_row * kRows;
    const std::byte* data = experts.first.data + expert * experts.data_stride + t * 16;
    from.low = data + min(row + g, rows - 1) * experts.first.row_bytes;
    from.high = data + min(row + 8 + g, rows - 1) * experts.first.row_bytes;
    if constexpr (C::kScaleBytes > 0)
      from.scales = scales_of_row<kFormat>(experts.first, min(row + lane % kRows, rows - 1)) + expert * experts.scales_stride;
  };
  WeightRing<C, kDepth> ring(shared.stages[warp]);
  bool is_fresh = true;
  // The chunk is known when this is compiled.
  const auto fetch = [&](int chunk) {
    if (left > 0) {
      if (chunk == 0) {
        // The last tile may not be whole; and rows may share scales.
        if (kFormat == QuantFormat::fp8_block || is_fresh || ahead_row == 0 || ahead_row == row_tiles - 1) {
          aim();
        } else {
          from.low += (kRows - 1) * experts.first.row_bytes;
          from.high += (kRows - 1) * experts.first.row_bytes;
          from.scales += (kRows - 1) * experts.first.scale_row_bytes;
        }
        is_fresh = false;
      }
      ring.fetch(from, 1);
      if (chunk == kChunks - 1) {
        --left;
        if (++ahead_row == row_tiles) ahead_row = 0, ++ahead;
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) fetch(i % kChunks);

  uint4 columns[kChunks][C::kUnits];  // of this lane's slot, lane / 4: rounded
  ExpertTile tile;
  float factor = 0;
  int listed_at = first / row_tiles - listed.x, row_tile = first % row_tiles;
  for (int at = first; at < end; ++at) {
    if (at == first || row_tile == 0) {
      tile = shared.list.tiles[listed_at++];
      factor = C::kFactor * experts.scale[tile.expert];
      make_now(factor);  // read now: a parameter's first use in a launch takes long
      const float* const own = x + std::int64_t{tile.first + min(g, tile.count - 1)} * kColumns;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int unit = 0; unit < C::kUnits; ++unit) {
          const auto* from = reinterpret_cast<const float4*>(own + chunk * C::kColumns + C::column(unit, t));
          columns[chunk][unit] = round_piece<C>(from[0], from[1]);
        }
      }
    }
    float sums[2][4] = {};
    bool bad[2] = {};
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      wait_for_copies<kDepth - 1>();
      __syncwarp();
      C now[2];
      ring.take(now, shared.scale_pairs);
#pragma unroll
      for (int half = 0; half < 2; ++half) bad[half] |= now[half].is_bad();
      __syncwarp();  // all lanes have read what the next copy overwrites
      fetch((chunk + kDepth) % kChunks);
      multiply_chunk<C>(now, columns[chunk], sums);
    }
    finish_sums(bad, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_tile * kRows + half * 8 + g;
      if (row >= rows) continue;
      float own_factor = factor;
      if constexpr (kFormat == QuantFormat::fp8_channel)
        own_factor *= float_at(scales_of_row<kFormat>(experts.first, row) + tile.expert * experts.scales_stride);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (t * 2 + i < tile.count) y[std::int64_t{tile.first + t * 2 + i} * rows + row] = sums[0][2 * half + i] * own_factor;
      }
    }
    if (++row_tile == row_tiles) row_tile = 0;
  }
  let_next_begin();
}

}  // namespace

bool fits_experts_down(const LinearExpertsArgs& args) {
  return args.precision == Precision::fast && args.rows == LinearExpertsArgs::Rows::by_slot && has_chunks(args.experts.front().format) &&
         args.experts.front().cols == kColumns;
}

void run_experts_down(const LinearExpertsArgs& args, Lane& lane) {
  for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
    static_assert(sizeof(Shared<kFormat>) <= kPortableSharedBytes);
    const std::int64_t row_tiles = blocks_for(args.experts.front().rows, kRows);
    const std::int64_t expert_tiles = most_expert_tiles(args.y.dim(0), std::ssize(args.experts), kTokens);
    // All at once; more where a block's share would not fit its list.
    const std::int64_t at_once = std::int64_t{multiprocessors()} * blocks_of(kFormat);
    const std::int64_t blocks =
        std::max(std::min<std::int64_t>(at_once, blocks_for(expert_tiles * row_tiles, kWarps)), expert_tiles / (kMostListed - 2) + 1);
    allow_shared(experts_down_kernel<kFormat>, sizeof(Shared<kFormat>));
    launch(experts_down_kernel<kFormat>, static_cast<unsigned>(blocks), kThreads, sizeof(Shared<kFormat>), stream_of(lane),
           args.slots.begin.i32(), args.x.f32(), args.y.f32(), device_experts(args.experts));
  });
}

}  // namespace reckoner::cuda
