// gated_experts and gated_linear in `fast` for few tokens, where reading the weights bounds it: a tile is eight rows of gate and the same
// eight of up, the two halves of a matrix instruction's large operand, so that a lane ends with both. All tiles of all experts that have
// slots are one stream, of which each block takes an equal share; its warps share the columns and add up their sums in order. For one
// token a block has a tile or two, so that what stands before its first weights are asked for is most of the time: nothing stands there but
// finding the expert, and all else is done while they come.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_list.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/line_ring.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/rounded.cuh"
#include "kernels/cuda/linear/weight_ring.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kRows = 8;         // of each of gate and up, a tile
constexpr int kMostListed = 32;  // expert tiles of a block
// Activations that each block rounds for itself, which saves a launch.
constexpr std::int64_t most_here_bytes(QuantFormat format) { return format == QuantFormat::nvfp4 ? 28 << 10 : 16 << 10; }

constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 6 : 4; }  // chunks
// Of a multiprocessor. Two leave registers for the activations of the next chunk, and the first cache room for those of an expert.
constexpr int kBlocks = 2;

template <QuantFormat kFormat>
struct Shared {
  using C = Chunk<kFormat>;
  Stage<C> stages[kWarps][depth_of(kFormat)];
  float sums[2][kWarps][kTokens][2 * kRows + 4];
  std::uint32_t scale_pairs[256];
  uint4 zeros[2 * C::kColumns / 8];  // of tokens that are not there
  float2 factors[kMostListed];       // of gate and up, a listed tile
  int tokens[kMostListed][kTokens];  // of the listed tiles but the first
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
  Divisor row_tiles, blocks;
  int count;
  float gate_scale[kMostExperts], up_scale[kMostExperts];
};

// What a warp takes at a time: whole lines of its rows, or half lines where a row of NVFP4 does not end with a whole one.
enum class Pieces { lines, chunks };
template <QuantFormat kFormat, Pieces kPieces>
struct Ring;
template <QuantFormat kFormat>
struct Ring<kFormat, Pieces::lines> : LineRing<Chunk<kFormat>, depth_of(kFormat) * Chunk<kFormat>::kPlanes / 2> {
  using C = Chunk<kFormat>;
  using Base = LineRing<C, depth_of(kFormat) * C::kPlanes / 2>;
  using Pointers = LinePointers;
  static constexpr int kDepth = depth_of(kFormat) * C::kPlanes / 2;
  __device__ explicit Ring(void* memory) : Base(memory) {}
  // From a piece of the two weights on, at rows of both from first_row on.
  __device__ static void aim(Pointers& at, const std::byte* gate, const std::byte* up, std::uint32_t row_bytes, int first_row, int rows,
                             int piece) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const auto row = static_cast<std::uint32_t>(min(first_row + j * 4 + lane / 8, rows - 1));
      const std::int64_t offset = std::int64_t{row} * row_bytes + (piece * 128 + lane % 8 * 16);
      at.rows[j] = gate + offset, at.rows[2 + j] = up + offset;
      make_now(at.rows[j]), make_now(at.rows[2 + j]);  // not once more for each of the first fetches
    }
  }
};
template <QuantFormat kFormat>
struct Ring<kFormat, Pieces::chunks> : WeightRing<Chunk<kFormat>, depth_of(kFormat)> {
  using C = Chunk<kFormat>;
  using Base = WeightRing<C, depth_of(kFormat)>;
  using Pointers = RowPointers;
  static constexpr int kDepth = depth_of(kFormat), kChunks = 1;
  __device__ explicit Ring(void* memory) : Base(*static_cast<Stage<C> (*)[kDepth]>(memory)) {}
  __device__ static void aim(Pointers& at, const std::byte* gate, const std::byte* up, std::uint32_t row_bytes, int first_row, int rows,
                             int piece) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto row = static_cast<std::uint32_t>(min(first_row + lane / 4, rows - 1));
    const std::int64_t offset = std::int64_t{row} * row_bytes + (piece * (C::kPlanes * 64) + lane % 4 * 16);
    at.low = gate + offset, at.high = up + offset;
    make_now(at.low), make_now(at.high);
  }
  __device__ void take(int, C (&now)[2], const std::uint32_t* scale_pairs) { Base::take(now, scale_pairs); }
  __device__ void next() {}
};

// A row's columns in a warp's pieces, which nobody else reads: its lanes round them. A lane's eights of columns lie equally far apart.
template <class C, int kChunks>
struct OwnColumns {
  static constexpr int kEights = kChunks * C::kColumns / 8;  // a piece
  static constexpr int kStep = kWarps * 32;                  // to the lane's next
  static constexpr int kAtOnce = 3;                          // all of one row of 6144
  float4 values[kAtOnce][2];
  int first, count;  // the lane's

  __device__ OwnColumns(int warp, int lane, int pieces)
      : first((warp + kWarps * (lane / kEights)) * kEights + lane % kEights), count((pieces * kEights - lane + 31) / 32) {}
  // Those from the index-th on, of the row that begins at x, which are then put where the rounded row is.
  __device__ void load(const float* x, int index) {
    const auto* from = reinterpret_cast<const float4*>(x) + 2 * (first + index * kStep);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (index + i < count) values[i][0] = from[2 * i * kStep], values[i][1] = from[2 * i * kStep + 1];
    }
  }
  __device__ void put(uint4* row, int index) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (index + i < count) row[first + (index + i) * kStep] = round_piece<C>(values[i][0], values[i][1]);
    }
  }
};

template <QuantFormat kFormat, Source kSource, Pieces kPieces>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gated_experts_kernel(Slots slots, const void* x, int x_rows, float* y, const __grid_constant__ Gated w) {
  using C = Chunk<kFormat>;
  using R = Ring<kFormat, kPieces>;
  constexpr int kColumns = R::kChunks * C::kColumns;  // a piece
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<Shared<kFormat>*>(memory);
  auto* const here = reinterpret_cast<uint4*>(memory + sizeof(shared));  // rounded here: [x_rows, cols]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int cols = static_cast<int>(w.gate.cols), rows = static_cast<int>(w.gate.rows);
  const int own_pieces = max(cols / kColumns - warp + kWarps - 1, 0) / kWarps, row_tiles = static_cast<int>(w.row_tiles.by);
  if constexpr (kFormat == QuantFormat::nvfp4) shared.scale_pairs[thread] = C::scale_pair(thread);
  if (thread < kColumns / 8) shared.zeros[thread] = make_uint4(0, 0, 0, 0);
  OwnColumns<C, R::kChunks> own_columns(warp, lane, own_pieces);
  wait_for_previous();
  int first = 0, end = 0;  // of the stream's tiles
  const auto range = [&](int all) {
    const int tiles = all * row_tiles, each = w.blocks.divide_up(tiles);
    first = min(static_cast<int>(blockIdx.x) * each, tiles), end = min(first + each, tiles);
    return make_int2(w.row_tiles.divide(first), w.row_tiles.divide_up(end));
  };
  const auto ask_for_x = [&] {
    if constexpr (kSource == Source::rounded_here) own_columns.load(static_cast<const float*>(x), 0);
  };
  int2 listed;
  if (slots.begin != nullptr && x_rows == 1) {
    listed = list_slots<kThreads>(slots.begin, w.count, shared.list, range, ask_for_x);
  } else if (slots.begin != nullptr) {
    ask_for_x();
    listed = list_expert_tiles<kThreads>(slots.begin, w.count, kTokens, shared.list, range);
  } else {
    ask_for_x();
    listed = range((x_rows + kTokens - 1) / kTokens);
    const int slot = (listed.x + thread) * kTokens;
    if (thread < listed.y - listed.x) shared.list.tiles[thread] = {.expert = 0, .first = slot, .count = min(kTokens, x_rows - slot)};
  }
  __syncthreads();
  if (first == end) return;

  // What is fetched next.
  R ring(&shared.stages[warp]);
  typename R::Pointers from{};
  int row_tile = first - listed.x * row_tiles;
  int left = own_pieces > 0 ? end - first : 0, ahead = 0, ahead_row = row_tile, ahead_left = left > 0 ? own_pieces : 0;
  ExpertTile tile = shared.list.tiles[0];
  const auto aim = [&](std::int64_t expert) {
    R::aim(from, w.gate.data + expert * w.gate_stride, w.up.data + expert * w.up_stride, static_cast<std::uint32_t>(w.gate.row_bytes),
           ahead_row * kRows, rows, warp);
    if constexpr (C::kScaleBytes > 0) {
      const int scaled = min(ahead_row * kRows + lane % kRows, rows - 1);
      const std::int64_t scales_at = scales_of_row<kFormat>(w.gate, scaled) - w.gate.scales + warp * (R::kChunks * C::kScaleBytes);
      const std::byte* gate_scales = w.gate.scales + expert * w.gate_scales_stride;
      const std::byte* up_scales = w.up.scales + expert * w.up_scales_stride;
      from.scales = (lane < kRows ? gate_scales : up_scales) + scales_at;
      make_now(from.scales);
    }
  };
  const auto move_on = [&] {  // behind a tile's last piece
    if (ahead_left > 0 || --left <= 0) return;
    ahead_left = own_pieces;
    if (++ahead_row == row_tiles) ahead_row = 0, ++ahead;
    aim(shared.list.tiles[ahead].expert);
  };
  const auto fetch = [&] {
    if (ahead_left > 0) {
      ring.fetch(from, kWarps);
      --ahead_left;
      move_on();
    }
    commit_copies();
  };
  int begun = 0;
  if (left > 0) {
    aim(tile.expert);
    begun = ring.template start<kWarps>(from, own_pieces);
    ahead_left -= begun;
    move_on();
  }
#pragma unroll 1
  for (; begun < R::kDepth; ++begun) fetch();

  // What is needed later than the first weights. Factors and tokens are read behind the barriers of the loop.
  const bool has_tokens = slots.begin != nullptr && x_rows > 1;
  int token = has_tokens ? 0 : tile.first + g;
  if (has_tokens) {
    const int index = thread / kTokens, other = thread % kTokens;
    if (g < tile.count) token = slots.tokens[tile.first + g];
    if (index < listed.y - listed.x && other < shared.list.tiles[index].count)
      shared.tokens[index][other] = slots.tokens[shared.list.tiles[index].first + other];
  } else if (slots.begin != nullptr) {
    token = 0;
  }
  if (warp == kWarps - 1 && lane < listed.y - listed.x) {
    const int expert = shared.list.tiles[lane].expert;
    shared.factors[lane] = make_float2(C::kFactor * w.gate_scale[expert], C::kFactor * w.up_scale[expert]);
  }
  if constexpr (kSource == Source::rounded_here) {
    for (int row = 0; row < x_rows; ++row) {
      for (int index = 0; index < own_columns.count; index += own_columns.kAtOnce) {
        if (row + index > 0) own_columns.load(static_cast<const float*>(x) + row * cols, index);
        own_columns.put(here + row * (cols / 8), index);
      }
    }
    __syncwarp();
  }

  int buffer = 0, index = 0;
  // The rounded row of this lane's token, lane / 4, if there is one: here from the warp's first piece on, and how far it is to the next.
  const void* own = nullptr;
  const uint4* own_here = nullptr;
  int own_step = 0;
  TokenColumns<C, 1> next;  // of the chunk that comes next
  for (int at = first; at < end; ++at) {
    if (at == first || row_tile == 0) {
      if (at != first) {
        tile = shared.list.tiles[++index];
        if (slots.begin == nullptr) token = tile.first + g;
        if (has_tokens && g < tile.count) token = shared.tokens[index][g];
      }
      const bool there = g < tile.count;
      if constexpr (kSource == Source::rounded_here) {
        own_here = there ? here + token * (cols / 8) + (warp * kColumns + C::column(0, t)) / 8 : shared.zeros;
        own_step = there ? kWarps * kColumns / 8 : 0;
      } else {
        own = there ? static_cast<const std::uint16_t*>(x) + std::int64_t{token} * cols : nullptr;
        if (own_pieces > 0) next.load(own, warp * R::kChunks, t);
      }
    }
    float sums[2][4] = {};  // of every second instruction, so that they need not wait for each other
    bool bad[2] = {};
    const uint4* columns_here = own_here;
#pragma unroll 1
    for (int piece = 0; piece < own_pieces; ++piece) {
      wait_for_copies<R::kDepth - 1>();
      __syncwarp();
#pragma unroll
      for (int chunk = 0; chunk < R::kChunks; ++chunk) {
        const bool is_last = chunk == R::kChunks - 1;
        TokenColumns<C, 1> columns = next;
        if constexpr (kSource == Source::rounded_here) {
#pragma unroll
          for (int unit = 0; unit < C::kUnits; ++unit) columns.pieces[unit] = columns_here[(chunk * C::kColumns + C::column(unit, 0)) / 8];
        } else {
          // After a tile's last chunk the first of the next, which is of the same token unless the expert changes.
          const int following = !is_last ? piece : piece + 1 < own_pieces ? piece + 1 : 0;
          next.load(own, (warp + following * kWarps) * R::kChunks + (is_last ? 0 : chunk + 1), t);
        }
        C now[2];
        ring.take(chunk, now, shared.scale_pairs);
#pragma unroll
        for (int half = 0; half < 2; ++half) bad[half] |= now[half].is_bad();
        if (is_last) {
          ring.next();
          __syncwarp();  // all lanes have read what the next copy overwrites
          fetch();
        }
        multiply_chunk<C>(now, columns.pieces, sums);
      }
      columns_here += own_step;
    }
    if (at == end - 1) let_next_begin();
    finish_sums(bad, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.sums[buffer][warp][t * 2 + i % 2][i / 2 * kRows + g] = sums[0][i];
    __syncthreads();
    // Other warps each time.
    const int item = (thread + (at - first) % 4 * (kThreads / 4)) % kThreads, slot = item / kRows, row = row_tile * kRows + item % kRows;
    if (slot < tile.count && row < rows) {
      float gated = 0, upper = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        gated += shared.sums[buffer][other][slot][item % kRows];
        upper += shared.sums[buffer][other][slot][kRows + item % kRows];
      }
      if constexpr (kFormat == QuantFormat::fp8_channel) {
        gated *= float_at(scales_of_row<kFormat>(w.gate, row) + tile.expert * w.gate_scales_stride);
        upper *= float_at(scales_of_row<kFormat>(w.up, row) + tile.expert * w.up_scales_stride);
      }
      gated *= shared.factors[index].x, upper *= shared.factors[index].y;
      y[std::int64_t{tile.first + slot} * rows + row] = gated / (1.0f + expf(-gated)) * upper;
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

template <QuantFormat kFormat, Source kSource, Pieces kPieces>
void launch_gated_by(const Launch& what, const void* x, Lane& lane) {
  static_assert(sizeof(Shared<kFormat>) + most_here_bytes(kFormat) <= kPortableSharedBytes);
  const std::int64_t shared =
      static_cast<std::int64_t>(sizeof(Shared<kFormat>)) + (kSource == Source::rounded_here ? here_bytes(what.x) : 0);
  const std::int64_t tiles = what.expert_tiles * blocks_for(what.weights.gate.rows, kRows);
  // All at once; more where a block's share would not fit its list.
  const std::int64_t at_once = std::int64_t{multiprocessors()} * kBlocks;
  const std::int64_t blocks = std::max(std::min(at_once, tiles), what.expert_tiles / (kMostListed - 2) + 1);
  Gated weights = what.weights;
  weights.row_tiles = divisor(blocks_for(what.weights.gate.rows, kRows));
  weights.blocks = divisor(blocks);
  allow_shared(gated_experts_kernel<kFormat, kSource, kPieces>, shared);
  launch(gated_experts_kernel<kFormat, kSource, kPieces>, static_cast<unsigned>(blocks), kThreads, shared, stream_of(lane), what.slots, x,
         static_cast<int>(what.x.dim(0)), what.y.f32(), weights);
}

template <QuantFormat kFormat, Source kSource>
void launch_gated(const Launch& what, const void* x, Lane& lane) {
  if constexpr (kFormat == QuantFormat::nvfp4) {
    if (what.weights.gate.cols % 256 != 0) return launch_gated_by<kFormat, kSource, Pieces::chunks>(what, x, lane);
  }
  launch_gated_by<kFormat, kSource, Pieces::lines>(what, x, lane);
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
