// experts_combine in `fast` for up to eight tokens, in one launch: a block has sixteen rows of all experts that have slots, its warps an
// expert after the other, and then adds up what each token chose. The shared expert's weights are known, so they are asked for before the
// kernel ahead has ended; its columns are spread over the warps.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_list.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kRows = 16;  // a block
constexpr int kMostSlots = 64;

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
  ExpertList<kThreads, kMostSlots> list;
};

// A lane's columns of its token, rounded: zeros without one.
template <class C>
struct Columns {
  uint4 pieces[C::kUnits];
  __device__ void load(const float* x, int chunk, int t) {
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
};

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

template <QuantFormat kFormat, QuantFormat kShared>
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
  wait_for_previous();
  const int slots = args.tokens * args.top_k;
  if (thread < slots) shared.weights[thread] = args.weights[thread], shared.slot_of[thread] = args.slot_of[thread];
  const int2 listed = list_expert_tiles<kThreads>(args.begin, experts.count, kTokens, shared.list,
                                                  [](int all) { return make_int2(0, min(all, kMostSlots)); });
  __syncthreads();

  // The warp's expert tiles: warp, warp + kWarps, ...
  const std::byte *low = nullptr, *high = nullptr, *scales = nullptr;
  int ahead = warp, ahead_chunk = 0, ahead_slot = 0;
  const auto aim = [&] {
    const int expert = shared.list.tiles[ahead].expert;
    const std::byte* data = experts.first.data + expert * experts.data_stride + t * 16;
    low = data + own_rows[0] * experts.first.row_bytes;
    high = data + own_rows[1] * experts.first.row_bytes;
    if constexpr (C::kScaleBytes > 0)
      scales = scales_of_row<kFormat>(experts.first, min(first_row + lane % kRows, rows - 1)) + expert * experts.scales_stride;
  };
  const auto fetch = [&] {
    if (ahead < listed.y) {
      fetch_rows(shared.stages[warp][ahead_slot], low, high, scales, ahead_chunk);
      ahead_slot = ahead_slot == kDepth - 1 ? 0 : ahead_slot + 1;
      if (++ahead_chunk == chunks) {
        ahead_chunk = 0;
        ahead += kWarps;
        if (ahead < listed.y) aim();
      }
    }
    commit_copies();
  };
  if (ahead < listed.y) aim();
#pragma unroll
  for (int i = 0; i < kDepth; ++i) fetch();

  {
    const float* const own = g < args.tokens ? args.shared_x + g * shared_cols : nullptr;
    float sums[4] = {};
    bool bad[2] = {};
    for (int chunk = warp; chunk < shared_chunks; chunk += kWarps) {
      Columns<S> columns;
      columns.load(own, chunk, t);
      if (chunk != warp) shared_chunk.load(shared_weight, own_rows, chunk, t);
      shared_chunk.take_scales(shared.scale_pairs);
#pragma unroll
      for (int half = 0; half < 2; ++half) bad[half] |= shared_chunk.rows[half].is_bad();
      multiply_chunk<S>(shared_chunk.rows, columns.pieces, sums);
    }
    spoil_bad_rows(bad, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.shared_sums[warp][t * 2 + i % 2][i / 2 * 8 + g] = sums[i];
  }

  int slot = 0;
  for (int index = warp; index < listed.y; index += kWarps) {
    const ExpertTile tile = shared.list.tiles[index];
    const float* const own = g < tile.count ? args.x + std::int64_t{tile.first + g} * cols : nullptr;
    float sums[4] = {};
    bool bad[2] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Columns<C> columns;
      columns.load(own, chunk, t);
      wait_for_copies<kDepth - 1>();
      __syncwarp();
      const Stage<C>& stage = shared.stages[warp][slot];
      slot = slot == kDepth - 1 ? 0 : slot + 1;
      C now[2];
      take_rows(stage, shared.scale_pairs, now, bad);
      __syncwarp();  // all lanes have read what the next copy overwrites
      fetch();
      multiply_chunk<C>(now, columns.pieces, sums);
    }
    spoil_bad_rows(bad, sums);
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factors[half] = C::kFactor * experts.scale[tile.expert];
      if constexpr (kFormat == QuantFormat::fp8_channel)
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
  for_chunk_format(format, [&]<QuantFormat kFormat>() { bytes = sizeof(Shared<kFormat>); });
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
    static_assert(sizeof(Shared<kFormat>) <= kPortableSharedBytes);
    allow_shared(experts_combine_kernel<kFormat, kShared>, sizeof(Shared<kFormat>));
    launch(experts_combine_kernel<kFormat, kShared>, blocks_for(args.shared.rows, kRows), kThreads, sizeof(Shared<kFormat>),
           stream_of(lane), device_experts(args.experts), device_weight(args.shared), combined);
  });
}

}  // namespace reckoner::cuda
