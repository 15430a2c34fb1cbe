// gated_experts and gated_linear in `fast` for few tokens, where reading the weights bounds it: a tile is eight rows of gate and the same
// eight of up, the two halves of a matrix instruction's large operand, so that a lane ends with both. All tiles of all experts that have
// slots are one stream, of which each block takes an equal share; its warps share the columns and add up their sums in order.
#include "kernels/cuda/common/instructions.cuh"
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
// Of a multiprocessor. Two leave registers for the activations of the next chunk, and the first cache room for those of an expert.
constexpr int kBlocks = 2;

template <QuantFormat kFormat>
struct Shared {
  using C = Chunk<kFormat>;
  Stage<C> stages[kWarps][depth_of(kFormat)];
  float sums[2][kWarps][kTokens][2 * kRows + 4];
  std::uint32_t scale_pairs[256];
  ExpertList<kThreads, kMostListed> list;
};

struct Slots {
  const std::int32_t* begin;   // [experts + 1], or null: one expert for all
  const std::int32_t* tokens;  // [slots]
};

enum class Source { rounded, rounded_here };

// What is read first stands first: a parameter's first use in a launch takes long.
struct Gated {
  DeviceWeight gate, up;
  std::int64_t gate_stride, gate_scales_stride, up_stride, up_scales_stride;  // from an expert to the next
  int count;
  float gate_scale[kMostExperts], up_scale[kMostExperts];
};

template <QuantFormat kFormat, Source kSource>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gated_experts_kernel(Slots slots, const void* x, int x_rows, float* y, const __grid_constant__ Gated w) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = depth_of(kFormat);
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<Shared<kFormat>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int cols = static_cast<int>(w.gate.cols), rows = static_cast<int>(w.gate.rows);
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
  const auto range = [&](int all) {
    const int tiles = all * row_tiles, each = (tiles + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    first = min(static_cast<int>(blockIdx.x) * each, tiles), end = min(first + each, tiles);
    return make_int2(first / row_tiles, (end + row_tiles - 1) / row_tiles);
  };
  int2 listed;
  if (slots.begin != nullptr) {
    listed = list_expert_tiles<kThreads>(slots.begin, w.count, kTokens, shared.list, range);
  } else {
    listed = range((x_rows + kTokens - 1) / kTokens);
    const int slot = (listed.x + thread) * kTokens;
    if (thread < listed.y - listed.x) shared.list.tiles[thread] = {.expert = 0, .first = slot, .count = min(kTokens, x_rows - slot)};
  }
  __syncthreads();
  if (first == end) return;

  // What is fetched next.
  const std::byte *low = nullptr, *high = nullptr, *scales = nullptr;
  int left = end - first, ahead = first / row_tiles - listed.x, ahead_row = first % row_tiles, ahead_chunk = warp, ahead_slot = 0;
  const auto aim = [&] {
    const int expert = shared.list.tiles[ahead].expert, row = min(ahead_row * kRows + g, rows - 1);
    low = w.gate.data + expert * w.gate_stride + row * w.gate.row_bytes + t * 16;
    high = w.up.data + expert * w.up_stride + row * w.gate.row_bytes + t * 16;
    if constexpr (C::kScaleBytes > 0) {
      const int scaled = min(ahead_row * kRows + lane % kRows, rows - 1);
      scales = lane < kRows ? scales_of_row<kFormat>(w.gate, scaled) + expert * w.gate_scales_stride
                            : scales_of_row<kFormat>(w.up, scaled) + expert * w.up_scales_stride;
    }
  };
  const auto fetch = [&] {
    if (left > 0) {
      fetch_rows(shared.stages[warp][ahead_slot], low, high, scales, ahead_chunk);
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
  float factors[2] = {};
  TokenColumns<C, 1> next;  // of the chunk that comes next
  for (int at = first; at < end; ++at) {
    if (at == first || row_tile == 0) {
      tile = shared.list.tiles[listed_at++];
      const std::int64_t token = slots.begin == nullptr ? tile.first + g : g < tile.count ? slots.tokens[tile.first + g] : 0;
      own = g < tile.count ? static_cast<const std::uint16_t*>(rounded) + token * cols : nullptr;
      factors[0] = C::kFactor * w.gate_scale[tile.expert], factors[1] = C::kFactor * w.up_scale[tile.expert];
      make_now(factors[0]), make_now(factors[1]);  // read now: that takes long
      if (kSource == Source::rounded && warp < chunks) next.load(own, warp, t);
    }
    float sums[2][4] = {};  // of every second instruction, so that they need not wait for each other
    bool bad[2] = {};
    for (int chunk = warp; chunk < chunks; chunk += kWarps) {
      TokenColumns<C, 1> columns = next;
      if (kSource == Source::rounded_here) columns.load(own, chunk, t);
      // After a tile's last chunk the first of the next, which is of the same token unless the expert changes.
      if (kSource == Source::rounded) next.load(own, chunk + kWarps < chunks ? chunk + kWarps : warp, t);
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
    if (at == end - 1) let_next_begin();
    finish_sums(bad, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.sums[buffer][warp][t * 2 + i % 2][i / 2 * kRows + g] = sums[0][i];
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
        gated *= float_at(scales_of_row<kFormat>(w.gate, row) + tile.expert * w.gate_scales_stride);
        upper *= float_at(scales_of_row<kFormat>(w.up, row) + tile.expert * w.up_scales_stride);
      }
      gated *= factors[0], upper *= factors[1];
      y[std::int64_t{tile.first + token} * rows + row] = gated / (1.0f + expf(-gated)) * upper;
    }
    buffer ^= 1;
    if (++row_tile == row_tiles) row_tile = 0;
  }
}

// One launch of the kernel, whichever the op.
struct Launch {
  QuantFormat format;
  Slots slots;
  Tensor x, y;
  std::int64_t expert_tiles;  // at most
  Gated weights;
};

std::int64_t here_bytes(const Tensor& x) { return x.shape.elements() * 2; }
bool rounds_here(const Tensor& x, QuantFormat format) { return here_bytes(x) <= most_here_bytes(format); }

template <QuantFormat kFormat, Source kSource>
void launch_gated(const Launch& what, const void* x, Lane& lane) {
  static_assert(sizeof(Shared<kFormat>) + most_here_bytes(kFormat) <= kPortableSharedBytes);
  const std::int64_t shared =
      static_cast<std::int64_t>(sizeof(Shared<kFormat>)) + (kSource == Source::rounded_here ? here_bytes(what.x) : 0);
  const std::int64_t tiles = what.expert_tiles * blocks_for(what.weights.gate.rows, kRows);
  // All at once; more where a block's share would not fit its list.
  const std::int64_t at_once = std::int64_t{multiprocessors()} * kBlocks;
  const std::int64_t blocks = std::max(std::min(at_once, tiles), what.expert_tiles / (kMostListed - 2) + 1);
  allow_shared(gated_experts_kernel<kFormat, kSource>, shared);
  launch(gated_experts_kernel<kFormat, kSource>, static_cast<unsigned>(blocks), kThreads, shared, stream_of(lane), what.slots, x,
         static_cast<int>(what.x.dim(0)), what.y.f32(), what.weights);
}

void run_gated(const Launch& what, Lane& lane) {
  for_chunk_format(what.format, [&]<QuantFormat kFormat>() {
    if (rounds_here(what.x, kFormat)) return launch_gated<kFormat, Source::rounded_here>(what, what.x.data, lane);
    round_rows<kFormat>(what.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), what.x.shape.elements(), stream_of(lane));
    launch_gated<kFormat, Source::rounded>(what, lane.workspace, lane);
  });
}

bool fits(const Weight& gate, const Weight& up) {
  return has_chunks(gate.format) && gate.cols % 128 == 0 && gate.first_row == up.first_row;
}

}  // namespace

bool fits_gated_stream(const GatedExpertsArgs& args) { return fits(args.gate.front(), args.up.front()); }
bool fits_gated_stream(const GatedLinearArgs& args) { return fits(args.gate, args.up); }

std::int64_t gated_stream_shared_bytes(QuantFormat format) {
  std::int64_t bytes = 0;
  for_chunk_format(format, [&]<QuantFormat kFormat>() { bytes = sizeof(Shared<kFormat>) + most_here_bytes(kFormat); });
  return bytes;
}

std::int64_t gated_stream_workspace(const Tensor& x, QuantFormat format) { return rounds_here(x, format) ? 0 : here_bytes(x); }

void run_gated_stream(const GatedExpertsArgs& args, Lane& lane) {
  const DeviceExperts gate = device_experts(args.gate), up = device_experts(args.up);
  Launch what{.format = args.gate.front().format,
              .slots = {args.slots.begin.i32(), args.slots.tokens.i32()},
              .x = args.x,
              .y = args.y,
              .expert_tiles = most_expert_tiles(args.y.dim(0), gate.count, kTokens),
              .weights = {.gate = gate.first,
                          .up = up.first,
                          .gate_stride = gate.data_stride,
                          .gate_scales_stride = gate.scales_stride,
                          .up_stride = up.data_stride,
                          .up_scales_stride = up.scales_stride,
                          .count = gate.count}};
  std::copy_n(gate.scale, gate.count, what.weights.gate_scale);
  std::copy_n(up.scale, up.count, what.weights.up_scale);
  run_gated(what, lane);
}

void run_gated_stream(const GatedLinearArgs& args, Lane& lane) {
  Launch what{.format = args.gate.format,
              .slots = {},
              .x = args.x,
              .y = args.y,
              .expert_tiles = blocks_for(args.x.dim(0), kTokens),
              .weights = {.gate = device_weight(args.gate), .up = device_weight(args.up), .count = 1}};
  what.weights.gate_scale[0] = args.gate.scale, what.weights.up_scale[0] = args.up.scale;
  run_gated(what, lane);
}

}  // namespace reckoner::cuda
