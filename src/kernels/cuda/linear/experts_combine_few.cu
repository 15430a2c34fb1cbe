// experts_combine in `fast` for up to eight tokens, in one launch: a block has sixteen rows of all experts that have slots, its warps an
// expert after the other, and then adds up what each token chose. The shared expert's weights are known, so they are asked for before the
// kernel ahead has ended; its columns are spread over the warps. Of one token each warp rounds its slot's columns once, while weights come.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_list.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/line_ring.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/weight_ring.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kRows = 16;  // a block
constexpr int kMostSlots = 64;
constexpr int kMostPieces = 16;                   // of eight columns, a chunk
constexpr std::int64_t kMostHereBytes = 8 << 10;  // of one token's slots, rounded: with more, fewer blocks would fit

constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 4 : 3; }

template <QuantFormat kFormat>
struct Shared {
  using C = Chunk<kFormat>;
  Stage<C> stages[kWarps][depth_of(kFormat)];
  float results[kMostSlots][kRows + 1];
  float shared_sums[kWarps][kTokens][kRows + 4];
  float weights[kMostSlots];
  int slot_of[kMostSlots];
  std::uint32_t scale_pairs[256];
  uint4 zeros[kMostPieces];  // a chunk of the tokens that are not there
  uint4 shared_pieces[kWarps][kMostPieces];
  ExpertList<kThreads, kMostSlots> list;
};

// A lane's columns of its token, rounded: zeros without one.
template <class C>
__device__ __forceinline__ void load_rounded(const float* x, int chunk, int t, uint4 (&pieces)[C::kUnits]) {
#pragma unroll
  for (int unit = 0; unit < C::kUnits; ++unit) {
    float4 low = make_float4(0, 0, 0, 0), high = low;
    if (x != nullptr) {
      const auto* at = reinterpret_cast<const float4*>(x + chunk * C::kColumns + C::column(unit, t));
      low = at[0], high = at[1];
    }
    pieces[unit] = round_piece<C>(low, high);
  }
}

// The shared expert's chunk of sixteen rows, straight into registers.
template <QuantFormat kFormat>
struct SharedChunk {
  using C = Chunk<kFormat>;
  C rows[2];
  std::uint32_t scales[2] = {};  // the lane's, as they lie in memory
  __device__ void load(const DeviceWeight& w, const int (&row)[2], int chunk, int t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane)
        rows[half].codes[plane] =
            *reinterpret_cast<const uint4*>(w.data + row[half] * w.row_bytes + (chunk * C::kPlanes + plane) * 64 + t * 16);
      if constexpr (C::kScaleBytes > 0) scales[half] = C::fetch_scales(scales_of_row<kFormat>(w, row[half]) + chunk * C::kScaleBytes, t);
    }
  }
  __device__ void take_scales(const std::uint32_t* table) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].take_fetched(scales[half], table);
  }
};

// What the compiler makes room for in registers.
template <QuantFormat kFormat>
constexpr int least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return 2;
#else
  return kFormat == QuantFormat::nvfp4 ? 3 : 2;
#endif
}

struct Combined {
  const std::int32_t* begin;    // [experts + 1]
  const float* weights;         // [tokens, top_k]
  const std::int32_t* slot_of;  // [tokens, top_k]
  const float* x;               // [slots, in]
  const float* shared_x;        // [tokens, shared in]
  float* y;                     // [tokens, out]
  int tokens, top_k;
};

// Where the slots' columns are rounded: by each lane where it needs them, or, of one token, once, behind Shared.
enum class Rounding { by_lane, here };

// Sixteen rows of an expert on their way: of one token, whose rows are whole lines, by lines.
template <QuantFormat kFormat, Rounding kRounding>
struct WeightsAhead {
  using C = Chunk<kFormat>;
  WeightRing<C, depth_of(kFormat)> ring;
  RowPointers from{};
  __device__ explicit WeightsAhead(Stage<C> (&stages)[depth_of(kFormat)]) : ring(stages) {}
  __device__ void aim(const std::byte* data, std::uint32_t row_bytes, int first_row, int rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = first_row + lane / 4;
    from.low = data + std::int64_t{static_cast<std::uint32_t>(min(row, rows - 1))} * row_bytes + lane % 4 * 16;
    from.high = data + std::int64_t{static_cast<std::uint32_t>(min(row + 8, rows - 1))} * row_bytes + lane % 4 * 16;
  }
};
template <QuantFormat kFormat>
struct WeightsAhead<kFormat, Rounding::here> {
  using C = Chunk<kFormat>;
  LineRing<C, depth_of(kFormat) * C::kPlanes / 2> ring;
  LinePointers from{};
  __device__ explicit WeightsAhead(Stage<C> (&stages)[depth_of(kFormat)]) : ring(&stages) {}
  __device__ void aim(const std::byte* data, std::uint32_t row_bytes, int first_row, int rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto row = static_cast<std::uint32_t>(min(first_row + j * 4 + lane / 8, rows - 1));
      from.rows[j] = data + std::int64_t{row} * row_bytes + lane % 8 * 16;
      make_now(from.rows[j]);
    }
  }
};

template <QuantFormat kFormat, QuantFormat kShared, Rounding kRounding>
__global__ void __launch_bounds__(kThreads, (least_blocks<kFormat>()))
    experts_combine_kernel(const __grid_constant__ DeviceExperts experts, DeviceWeight shared_weight, Combined args) {
  using C = Chunk<kFormat>;
  using S = Chunk<kShared>;
  constexpr int kDepth = depth_of(kFormat);
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<Shared<kFormat>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int rows = static_cast<int>(experts.first.rows), cols = static_cast<int>(experts.first.cols);
  const int chunks = cols / C::kColumns, first_row = static_cast<int>(blockIdx.x) * kRows;
  const int own_rows[2] = {min(first_row + g, rows - 1), min(first_row + 8 + g, rows - 1)};
  // The shared expert's: chunk `warp` is asked for at once.
  const int shared_cols = static_cast<int>(shared_weight.cols), shared_chunks = shared_cols / S::kColumns;
  SharedChunk<kShared> shared_chunk;
  if (warp < shared_chunks) shared_chunk.load(shared_weight, own_rows, warp, t);
  if constexpr (kFormat == QuantFormat::nvfp4 || kShared == QuantFormat::nvfp4)
    shared.scale_pairs[thread] = Chunk<QuantFormat::nvfp4>::scale_pair(thread);
  constexpr bool kHere = kRounding == Rounding::here;
  if (kHere && thread < kMostPieces) shared.zeros[thread] = make_uint4(0, 0, 0, 0);
  wait_for_previous();
  const int slots = args.tokens * args.top_k, pieces = cols / 8;
  const float* const own_shared = g < args.tokens ? args.shared_x + g * shared_cols : nullptr;
  float weight = 0;
  int slot_of = 0;
  float4 piece[2], shared_piece[2];  // of the warp's first slot, and of the shared expert's columns in the warp's first chunk
  auto* const here = reinterpret_cast<uint4*>(memory + sizeof(shared));
  const auto load_shared = [&](int chunk) {
    if (lane >= S::kColumns / 8) return;
    const auto* from = reinterpret_cast<const float4*>(args.shared_x + chunk * S::kColumns) + 2 * lane;
    shared_piece[0] = from[0], shared_piece[1] = from[1];
  };
  const auto meanwhile = [&] {
    if (kHere && warp < slots && lane < pieces) {
      const auto* from = reinterpret_cast<const float4*>(args.x) + 2 * (warp * pieces + lane);
      piece[0] = from[0], piece[1] = from[1];
    }
    if (kHere && warp < shared_chunks) load_shared(warp);
    if (thread < slots) weight = args.weights[thread], slot_of = args.slot_of[thread];
  };
  const auto range = [](int all) { return make_int2(0, min(all, kMostSlots)); };
  int2 listed;
  if constexpr (kHere) {
    listed = list_slots<kThreads>(args.begin, experts.count, shared.list, range, meanwhile);
  } else {
    meanwhile();
    listed = list_expert_tiles<kThreads>(args.begin, experts.count, kTokens, shared.list, range);
  }
  __syncthreads();

  // The warp's expert tiles: warp, warp + kWarps, ...
  WeightsAhead<kFormat, kRounding> weights(shared.stages[warp]);
  constexpr int kChunks = kHere ? 2 / C::kPlanes : 1, kFetches = kHere ? kDepth / kChunks : kDepth;  // chunks of a fetch
  const int fetches = chunks / kChunks;
  int ahead = warp, ahead_left = warp < listed.y ? fetches : 0;
  const auto aim = [&] {
    const std::int64_t expert = shared.list.tiles[ahead].expert;
    const std::byte* const data = experts.first.data + expert * experts.data_stride;
    weights.aim(data, static_cast<std::uint32_t>(experts.first.row_bytes), first_row, rows);
    if constexpr (C::kScaleBytes > 0) {
      const std::byte*& scales = weights.from.scales;
      scales = scales_of_row<kFormat>(experts.first, min(first_row + lane % kRows, rows - 1)) + expert * experts.scales_stride;
      if (kHere) make_now(scales);  // not once more for each of the first fetches
    }
  };
  const auto move_on = [&] {  // behind a tile's last fetch
    if (ahead_left > 0) return;
    ahead += kWarps;
    if (ahead < listed.y) ahead_left = fetches, aim();
  };
  const auto fetch = [&] {
    if (ahead_left > 0) {
      weights.ring.fetch(weights.from, 1);
      --ahead_left;
      move_on();
    }
    commit_copies();
  };
  int begun = 0;
  if (ahead_left > 0) {
    aim();
    begun = weights.ring.template start<1>(weights.from, fetches);
    ahead_left -= begun;
    move_on();
  }
#pragma unroll 1
  for (; begun < kFetches; ++begun) fetch();

  // What is needed later than the first weights.
  if (thread < slots) shared.weights[thread] = weight, shared.slot_of[thread] = slot_of;
  {
    float sums[4] = {};
    bool bad[2] = {};
    for (int chunk = warp; chunk < shared_chunks; chunk += kWarps) {
      if (chunk != warp) shared_chunk.load(shared_weight, own_rows, chunk, t);
      uint4 columns[S::kUnits];
      if constexpr (kHere) {
        if (chunk != warp) load_shared(chunk);
        __syncwarp();  // the last chunk's have been read
        if (lane < S::kColumns / 8) shared.shared_pieces[warp][lane] = round_piece<S>(shared_piece[0], shared_piece[1]);
        __syncwarp();
        const uint4* own = g == 0 ? shared.shared_pieces[warp] + S::column(0, t) / 8 : shared.zeros;
#pragma unroll
        for (int unit = 0; unit < S::kUnits; ++unit) columns[unit] = own[S::column(unit, 0) / 8];
      } else {
        load_rounded<S>(own_shared, chunk, t, columns);
      }
      shared_chunk.take_scales(shared.scale_pairs);
#pragma unroll
      for (int half = 0; half < 2; ++half) bad[half] |= shared_chunk.rows[half].is_bad();
      multiply_chunk<S>(shared_chunk.rows, columns, sums);
    }
    spoil_bad_rows(bad, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.shared_sums[warp][t * 2 + i % 2][i / 2 * 8 + g] = sums[i];
  }
  if constexpr (kHere) {
    for (int row = warp; row < slots; row += kWarps) {
      for (int at = lane; at < pieces; at += 32) {
        const auto* x = reinterpret_cast<const float4*>(args.x) + 2 * (row * pieces + at);
        if (row != warp || at != lane) piece[0] = x[0], piece[1] = x[1];
        here[row * pieces + at] = round_piece<C>(piece[0], piece[1]);
      }
    }
    __syncwarp();
  }

  for (int index = warp; index < listed.y; index += kWarps) {
    const ExpertTile tile = shared.list.tiles[index];
    const bool there = g < tile.count;
    const float* const own = there ? args.x + std::int64_t{tile.first + g} * cols : nullptr;
    const uint4* own_here = there ? here + tile.first * pieces + C::column(0, t) / 8 : shared.zeros;
    const int step = there ? C::kColumns / 8 : 0;
    float factor = C::kFactor * experts.scale[tile.expert];
    make_now(factor);  // read now: that takes long
    float sums[4] = {};
    bool bad[2] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      uint4 columns[C::kUnits];
      const bool begins = chunk % kChunks == 0, ends = chunk % kChunks == kChunks - 1;  // what was fetched at once
      if constexpr (kHere) {
#pragma unroll
        for (int unit = 0; unit < C::kUnits; ++unit) columns[unit] = own_here[C::column(unit, 0) / 8];
        own_here += step;
      } else {
        load_rounded<C>(own, chunk, t, columns);
      }
      if (begins) {
        wait_for_copies<kFetches - 1>();
        __syncwarp();
      }
      C now[2];
      if constexpr (kHere) {
        weights.ring.take(chunk % kChunks, now, shared.scale_pairs);
      } else {
        weights.ring.take(now, shared.scale_pairs);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) bad[half] |= now[half].is_bad();
      if (ends) {
        if constexpr (kHere) weights.ring.next();
        __syncwarp();  // all lanes have read what the next copy overwrites
        fetch();
      }
      multiply_chunk<C>(now, columns, sums);
    }
    spoil_bad_rows(bad, sums);
    float factors[2] = {factor, factor};
    if constexpr (kFormat == QuantFormat::fp8_channel) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        factors[half] *= float_at(scales_of_row<kFormat>(experts.first, own_rows[half]) + tile.expert * experts.scales_stride);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (t * 2 + i % 2 < tile.count) shared.results[tile.first + t * 2 + i % 2][i / 2 * 8 + g] = sums[i] * factors[i / 2];
    }
  }
  let_next_begin();
  __syncthreads();
  const int token = thread / kRows, row = thread % kRows;
  if (token >= args.tokens || first_row + row >= rows) return;
  float sum = 0;
#pragma unroll
  for (int other = 0; other < kWarps; ++other) sum += shared.shared_sums[other][token][row];
  if constexpr (kShared == QuantFormat::fp8_channel) sum *= float_at(scales_of_row<kShared>(shared_weight, first_row + row));
  sum *= S::kFactor * shared_weight.scale;
  for (int k = 0; k < args.top_k; ++k) {
    const int choice = token * args.top_k + k;
    sum += shared.weights[choice] * shared.results[shared.slot_of[choice]][row];
  }
  args.y[std::int64_t{token} * rows + first_row + row] = sum;
}

template <QuantFormat kFormat, QuantFormat kShared, Rounding kRounding>
void launch_combine(const ExpertsCombineArgs& args, const Combined& combined, std::int64_t here_bytes, Lane& lane) {
  constexpr std::int64_t kBytes = sizeof(Shared<kFormat>);
  static_assert(kBytes + kMostHereBytes <= kPortableSharedBytes);
  allow_shared(experts_combine_kernel<kFormat, kShared, kRounding>, kBytes + here_bytes);
  launch(experts_combine_kernel<kFormat, kShared, kRounding>, blocks_for(args.shared.rows, kRows), kThreads, kBytes + here_bytes,
         stream_of(lane), device_experts(args.experts), device_weight(args.shared), combined);
}

// The shared expert is of the experts' format, or was left as it was.
template <class Body>
void for_formats(QuantFormat experts, QuantFormat shared, Body&& body) {
  for_chunk_format(experts, [&]<QuantFormat kFormat>() {
    if (shared == QuantFormat::bf16) return body.template operator()<kFormat, QuantFormat::bf16>();
    if constexpr (kFormat != QuantFormat::bf16) {
      if (shared == kFormat) body.template operator()<kFormat, kFormat>();
    }
  });
}

}  // namespace

bool fits_experts_combine_few(const ExpertsCombineArgs& args) {
  bool served = false;
  for_formats(args.experts.front().format, args.shared.format, [&]<QuantFormat, QuantFormat>() { served = true; });
  return served && args.weights.dim(0) <= kTokens && args.weights.shape.elements() <= kMostSlots && args.experts.front().cols % 128 == 0 &&
         args.shared.cols % 128 == 0;
}

std::int64_t experts_combine_shared_bytes(QuantFormat format) {
  std::int64_t bytes = 0;
  for_chunk_format(format, [&]<QuantFormat kFormat>() { bytes = sizeof(Shared<kFormat>) + kMostHereBytes; });
  return bytes;
}

void run_experts_combine_few(const ExpertsCombineArgs& args, Lane& lane) {
  const Combined combined{.begin = args.slots.begin.i32(),
                          .weights = args.weights.f32(),
                          .slot_of = args.slot_of.i32(),
                          .x = args.x.f32(),
                          .shared_x = args.shared_x.f32(),
                          .y = args.y.f32(),
                          .tokens = static_cast<int>(args.weights.dim(0)),
                          .top_k = static_cast<int>(args.weights.dim(1))};
  for_formats(args.experts.front().format, args.shared.format, [&]<QuantFormat kFormat, QuantFormat kShared>() {
    const std::int64_t here = args.x.shape.elements() * 2;
    const bool whole_lines = kFormat != QuantFormat::nvfp4 || args.experts.front().cols % 256 == 0;
    if (args.weights.dim(0) == 1 && args.x.dim(0) == args.weights.dim(1) && here <= kMostHereBytes && whole_lines)
      return launch_combine<kFormat, kShared, Rounding::here>(args, combined, here, lane);
    launch_combine<kFormat, kShared, Rounding::by_lane>(args, combined, 0, lane);
  });
}

}  // namespace reckoner::cuda
