// linear and linear_experts in `fast` for few tokens, as few_rows.cu has them but so that the stream of weights never waits: its first
// chunks are asked for before the activations are looked at, and a group of warps goes on to its next sixteen rows without draining. Where
// there are few columns a warp has whole rows to itself, and nothing to add up with others.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/rounded.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kRows = 16;  // of the weight, a tile
constexpr std::int64_t kColumnsMultiple = 128;
// Activations that a block rounds for itself, which saves a launch: as many as fit beside its chunks.
constexpr std::int64_t most_here_bytes(QuantFormat format) { return format == QuantFormat::nvfp4 ? 32 << 10 : 24 << 10; }
constexpr std::int64_t kMostTilesEach = 8;  // of a group, one after the other

// Chunks that a warp has under way, and blocks of eight warps that fit a multiprocessor's shared memory.
constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 6 : 4; }
constexpr int blocks_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 3 : 2; }

// What the compiler makes room for in registers: elsewhere shared memory has no room for a third block, and sm_80 would spill.
template <QuantFormat kFormat, int kWarps>
constexpr int least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return 2 * 8 / kWarps;
#else
  return blocks_of(kFormat) * 8 / kWarps;
#endif
}

// kShare warps share the columns of a tile.
template <QuantFormat kFormat, int kWarps, int kShare>
struct StreamShared {
  using C = Chunk<kFormat>;
  Stage<C> stages[kWarps][depth_of(kFormat)];
  float sums[kShare > 1 ? kWarps : 1][kTokens][kRows + 4];
  std::uint32_t scale_pairs[256];
};

// y[t][row] for the rows of the group's `tiles` tiles from `first_tile` on that exist. Each thread's `prepare()` gives the rounded row of
// its lane's token (lane / 4), or null; `y(t)` the place of token t's.
template <QuantFormat kFormat, int kWarps, int kShare, class Prepare, class Output>
__device__ void stream_rows(const DeviceWeight& w, int first_tile, int tiles, int tokens, StreamShared<kFormat, kWarps, kShare>& shared,
                            const Prepare& prepare, const Output& y) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = depth_of(kFormat);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int share = warp % kShare, chunks = static_cast<int>(w.cols / C::kColumns), rows = static_cast<int>(w.rows);
  const int own_chunks = (chunks - share + kShare - 1) / kShare;  // none if there are fewer chunks than warps

  // What is fetched next. Rows beyond the last are the last once more.
  const std::byte *low = nullptr, *high = nullptr, *scales = nullptr;
  int left = own_chunks > 0 ? own_chunks * tiles : 0, ahead_tile = first_tile, ahead_chunk = share, ahead_slot = 0;
  const auto aim = [&] {
    const int row = ahead_tile * kRows;
    low = w.data + min(row + g, rows - 1) * w.row_bytes + t * 16;
    high = w.data + min(row + 8 + g, rows - 1) * w.row_bytes + t * 16;
    scales = scales_of_row<kFormat>(w, min(row + lane % kRows, rows - 1));
  };
  const auto fetch = [&] {
    if (left > 0) {
      --left;
      fetch_rows(shared.stages[warp][ahead_slot], low, high, scales, ahead_chunk);
      ahead_slot = ahead_slot == kDepth - 1 ? 0 : ahead_slot + 1;
      ahead_chunk += kShare;
      if (ahead_chunk >= chunks) {
        ahead_chunk = share;
        ++ahead_tile;
        aim();
      }
    }
    commit_copies();
  };
  aim();
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i) fetch();
  if constexpr (kFormat == QuantFormat::nvfp4) {
    for (unsigned code = threadIdx.x; code < 256; code += kWarps * 32) shared.scale_pairs[code] = C::scale_pair(code);
  }
  const void* x = prepare();
  __syncthreads();

  const auto finish = [&](float sum, int row) {
    if constexpr (kFormat == QuantFormat::fp8_channel) sum *= float_at(scales_of_row<kFormat>(w, row));
    return sum * (C::kFactor * w.scale);
  };
  int slot = 0;
  for (int tile = first_tile; tile < first_tile + tiles; ++tile) {
    float sums[4] = {};
    bool bad[2] = {};
    for (int chunk = share; chunk < chunks; chunk += kShare) {
      __syncwarp();  // all lanes have read what the next copy overwrites
      fetch();
      TokenColumns<C, 1> columns;
      columns.load(x, chunk, t);
      wait_for_copies<kDepth - 1>();
      __syncwarp();
      const Stage<C>& stage = shared.stages[warp][slot];
      slot = slot == kDepth - 1 ? 0 : slot + 1;
      C now[2];
      take_rows(stage, shared.scale_pairs, now, bad);
      multiply_chunk<C>(now, columns.pieces, sums);
    }
    if (tile == first_tile + tiles - 1) let_next_begin();
    spoil_bad_rows(bad, sums);
    if constexpr (kShare == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = t * 2 + i % 2, row = tile * kRows + i / 2 * 8 + g;
        if (token < tokens && row < rows) y(token)[row] = finish(sums[i], row);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) shared.sums[warp][t * 2 + i % 2][i / 2 * 8 + g] = sums[i];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < tokens * kRows; i += kWarps * 32) {
        const int token = i / kRows, row = tile * kRows + i % kRows;
        float sum = 0;
#pragma unroll
        for (int other = 0; other < kWarps; ++other) sum += shared.sums[other][token][i % kRows];
        if (row < rows) y(token)[row] = finish(sum, row);
      }
      __syncthreads();
    }
  }
}

// Rounds `count` rows of activations into shared memory; `row(r)` is the place of row r. Two pieces of a thread are under way at a time.
template <class C, int kBlock, class Row>
__device__ void round_here(uint4* to, int count, int cols, const Row& row) {
  const int pieces = cols / 8, all = count * pieces;
  for (int first = static_cast<int>(threadIdx.x); first < all; first += 4 * kBlock) {
    uint4 rounded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int piece = first + i * kBlock;
      if (piece < all) rounded[i] = rounded_piece<C>(row(piece / pieces), piece % pieces);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i * kBlock < all) to[first + i * kBlock] = rounded[i];
    }
  }
}

enum class Tokens { rounded, rounded_here };

// The group's first tile, and how many there are: as many of `each` as there are left.
template <int kWarps, int kShare>
__device__ int2 own_tiles(std::int64_t rows, int each) {
  static_assert(kShare == 1 || kShare == kWarps, "all warps of a block meet at its barriers");
  const int group = kShare == 1 ? static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32 : static_cast<int>(blockIdx.x);
  const int all = static_cast<int>((rows + kRows - 1) / kRows), first = group * each;
  return make_int2(first, max(0, min(each, all - first)));
}

template <QuantFormat kFormat, int kWarps, int kShare, Tokens kSource>
__global__ void __launch_bounds__(kWarps * 32, (least_blocks<kFormat, kWarps>()))
    linear_stream_kernel(DeviceWeight w, const void* x, float* y, std::int64_t tokens, int each) {
  using C = Chunk<kFormat>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<StreamShared<kFormat, kWarps, kShare>*>(memory);
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first_token), static_cast<long long>(kTokens)));
  const int token = static_cast<int>(threadIdx.x) % 32 / 4, cols = static_cast<int>(w.cols);
  const int2 tiles = own_tiles<kWarps, kShare>(w.rows, each);
  const auto prepare = [&]() -> const void* {
    wait_for_previous();  // the first weights are on their way
    const void* rows = static_cast<const std::uint16_t*>(x) + first_token * cols;
    if constexpr (kSource == Tokens::rounded_here) {
      auto* here = reinterpret_cast<uint4*>(memory + sizeof(shared));
      const auto row = [&](int r) { return static_cast<const float*>(x) + (first_token + r) * cols; };
      round_here<C, kWarps * 32>(here, count, cols, row);
      rows = here;
    }
    return token < count ? static_cast<const std::uint16_t*>(rows) + token * cols : nullptr;
  };
  stream_rows<kFormat, kWarps, kShare>(w, tiles.x, tiles.y, count, shared, prepare, [&](int t) { return y + (first_token + t) * w.rows; });
}

template <QuantFormat kFormat, int kWarps, int kShare, Tokens kSource>
__global__ void __launch_bounds__(kWarps * 32, (least_blocks<kFormat, kWarps>()))
    linear_experts_stream_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                                 LinearExpertsArgs::Rows rows, const void* x, int x_rows, float* y, int each) {
  wait_for_previous();
  using C = Chunk<kFormat>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<StreamShared<kFormat, kWarps, kShare>*>(memory);
  __shared__ ExpertTile shared_tile;
  const ExpertTile slots = find_expert_tile(begin, experts.count, kTokens, static_cast<int>(blockIdx.y), shared_tile);
  if (slots.expert < 0) return;
  const DeviceWeight w = expert_weight(experts, slots.expert);
  const int token = static_cast<int>(threadIdx.x) % 32 / 4, cols = static_cast<int>(w.cols);
  const int2 tiles = own_tiles<kWarps, kShare>(w.rows, each);
  const auto row_of = [&](int t) {
    return rows == LinearExpertsArgs::Rows::by_token ? std::int64_t{tokens[slots.first + t]} : std::int64_t{slots.first + t};
  };
  const auto prepare = [&]() -> const void* {
    if constexpr (kSource == Tokens::rounded_here) {
      // By token: all of them, which are few; the slots say which is whose.
      const bool by_token = rows == LinearExpertsArgs::Rows::by_token;
      const std::int64_t first = by_token ? 0 : slots.first;
      auto* here = reinterpret_cast<uint4*>(memory + sizeof(shared));
      round_here<C, kWarps * 32>(here, by_token ? x_rows : slots.count, cols,
                                 [&](int r) { return static_cast<const float*>(x) + (first + r) * cols; });
      return token < slots.count ? reinterpret_cast<const std::uint16_t*>(here) + (row_of(token) - first) * cols : nullptr;
    } else {
      return token < slots.count ? static_cast<const std::uint16_t*>(x) + row_of(token) * cols : nullptr;
    }
  };
  stream_rows<kFormat, kWarps, kShare>(w, tiles.x, tiles.y, slots.count, shared, prepare,
                                       [&](int t) { return y + (slots.first + t) * w.rows; });
}

// ---- launching ----

// What a block has to round: the rows of an instruction; of experts by token all of x.
std::int64_t here_bytes(const LinearArgs& args) { return std::min<std::int64_t>(args.x.dim(0), kTokens) * args.x.dim(1) * 2; }
std::int64_t here_bytes(const LinearExpertsArgs& args) {
  const std::int64_t all = args.x.dim(0);
  return (args.rows == LinearExpertsArgs::Rows::by_token ? all : std::min<std::int64_t>(all, kTokens)) * args.x.dim(1) * 2;
}
template <class Args>
bool rounds_here(const Args& args) {
  return here_bytes(args) <= most_here_bytes(args.key().format);
}

// How many tiles a group takes one after the other, so that all groups of `repeats` such weights run at a time, each with as many.
int tiles_each(std::int64_t tiles, std::int64_t repeats, std::int64_t groups_at_a_time) {
  return static_cast<int>(std::clamp<std::int64_t>((tiles * repeats + groups_at_a_time - 1) / groups_at_a_time, 1, kMostTilesEach));
}

// With few columns each warp would have too few to keep a stream going.
template <class Body>
void for_split(std::int64_t cols, Body&& body) {
  if (cols <= 512) return body.template operator()<4, 1>();
  if (cols <= 2048) return body.template operator()<4, 4>();
  body.template operator()<8, 8>();
}

template <QuantFormat kFormat, int kWarps, int kShare>
constexpr std::int64_t kSharedBytes = sizeof(StreamShared<kFormat, kWarps, kShare>);

template <QuantFormat kFormat, int kWarps, int kShare, Tokens kSource>
void launch_linear(const LinearArgs& args, const void* x, Lane& lane) {
  static_assert(kSharedBytes<kFormat, kWarps, kShare> + most_here_bytes(kFormat) <= kPortableSharedBytes);
  constexpr int kGroups = kWarps / kShare;
  const std::int64_t tokens = args.x.dim(0), tiles = blocks_for(args.w.rows, kRows), token_tiles = blocks_for(tokens, kTokens);
  const std::int64_t shared = kSharedBytes<kFormat, kWarps, kShare> + (kSource == Tokens::rounded_here ? here_bytes(args) : 0);
  const int each = tiles_each(tiles, token_tiles, std::int64_t{multiprocessors()} * blocks_of(kFormat) * 8 / kShare);
  const dim3 grid(blocks_for(tiles, std::int64_t{each} * kGroups), static_cast<unsigned>(token_tiles));
  allow_shared(linear_stream_kernel<kFormat, kWarps, kShare, kSource>, shared);
  launch(linear_stream_kernel<kFormat, kWarps, kShare, kSource>, grid, kWarps * 32, shared, stream_of(lane), device_weight(args.w), x,
         args.y.f32(), tokens, each);
}

template <QuantFormat kFormat, int kWarps, int kShare, Tokens kSource>
void launch_experts(const LinearExpertsArgs& args, const void* x, Lane& lane) {
  static_assert(kSharedBytes<kFormat, kWarps, kShare> + most_here_bytes(kFormat) + 16 <= kPortableSharedBytes);
  constexpr int kGroups = kWarps / kShare;
  const DeviceExperts experts = device_experts(args.experts);
  const std::int64_t tiles = blocks_for(experts.first.rows, kRows), slot_tiles = most_expert_tiles(args.y.dim(0), experts.count, kTokens);
  const std::int64_t shared = kSharedBytes<kFormat, kWarps, kShare> + (kSource == Tokens::rounded_here ? here_bytes(args) : 0);
  const int each = tiles_each(tiles, slot_tiles, std::int64_t{multiprocessors()} * blocks_of(kFormat) * 8 / kShare);
  const dim3 grid(blocks_for(tiles, std::int64_t{each} * kGroups), static_cast<unsigned>(slot_tiles));
  allow_shared(linear_experts_stream_kernel<kFormat, kWarps, kShare, kSource>, shared);
  launch(linear_experts_stream_kernel<kFormat, kWarps, kShare, kSource>, grid, kWarps * 32, shared, stream_of(lane), experts,
         args.slots.begin.i32(), args.slots.tokens.i32(), args.rows, x, static_cast<int>(args.x.dim(0)), args.y.f32(), each);
}

bool fits_stream(const Weight& w) { return has_chunks(w.format) && w.cols % kColumnsMultiple == 0; }

}  // namespace

std::int64_t stream_shared_bytes(QuantFormat format) {
  std::int64_t bytes = 0;
  for_chunk_format(format,
                   [&]<QuantFormat kFormat>() { bytes = kSharedBytes<kFormat, 8, 8> + most_here_bytes(kFormat) + sizeof(ExpertTile); });
  return bytes;
}

bool fits_linear_stream(const LinearArgs& args) { return fits_stream(args.w); }
bool fits_linear_stream(const LinearExpertsArgs& args) { return fits_stream(args.experts.front()); }

std::int64_t linear_stream_workspace(const LinearArgs& args) {
  return rounds_here(args) ? 0 : std::min(args.x.dim(0), part_tokens(args.w.cols)) * args.w.cols * 2;
}
std::int64_t linear_stream_workspace(const LinearExpertsArgs& args) { return rounds_here(args) ? 0 : args.x.shape.elements() * 2; }

void run_linear_stream(const LinearArgs& args, Lane& lane) {
  for_split(args.w.cols, [&]<int kWarps, int kShare>() {
    for_chunk_format(args.w.format, [&]<QuantFormat kFormat>() {
      if (rounds_here(args)) return launch_linear<kFormat, kWarps, kShare, Tokens::rounded_here>(args, args.x.data, lane);
      const std::int64_t tokens = args.x.dim(0), part = part_tokens(args.w.cols);
      for (std::int64_t first = 0; first < tokens; first += part) {
        LinearArgs some = args;
        some.x = args.x.rows(first, std::min(part, tokens - first));
        some.y = args.y.rows(first, std::min(part, tokens - first));
        round_rows<kFormat>(some.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), some.x.shape.elements(), stream_of(lane));
        launch_linear<kFormat, kWarps, kShare, Tokens::rounded>(some, lane.workspace, lane);
      }
    });
  });
}

void run_linear_stream(const LinearExpertsArgs& args, Lane& lane) {
  for_split(args.experts.front().cols, [&]<int kWarps, int kShare>() {
    for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
      if (rounds_here(args)) return launch_experts<kFormat, kWarps, kShare, Tokens::rounded_here>(args, args.x.data, lane);
      round_rows<kFormat>(args.x.f32(), reinterpret_cast<std::uint16_t*>(lane.workspace), args.x.shape.elements(), stream_of(lane));
      launch_experts<kFormat, kWarps, kShare, Tokens::rounded>(args, lane.workspace, lane);
    });
  });
}

}  // namespace reckoner::cuda
