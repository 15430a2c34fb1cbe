// The kernel of many_rows_wgmma.cu: y^T = w x^T in tiles of 64 rows of the weight a warpgroup by up to kTokens tokens a block. The weight
// is decoded in registers, as the operand that the instruction takes from there: each warp fetches what it decodes itself. The tokens are
// rounded to BF16 beforehand, in the order in which the codes come out (round_for_products); a warpgroup of its own fetches them, row by
// row, into a ring of pieces of 64 columns that all others multiply with.
#pragma once

#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "ops/linear_group.h"

namespace reckoner::cuda {

inline constexpr int kPieceColumns = 64;  // of the ring
inline constexpr int kGroupRows = 64;     // of the weight, a warpgroup
inline constexpr int kMostSplits = 8;     // blocks that share the columns of a tile: a cluster that every device can have

// How a block is made: so many warpgroups that multiply and threads that fetch tokens, tokens at most, pieces in the ring, chunks of the
// weight under way, and blocks at a time on a multiprocessor.
template <int kMultiply, int kFetch, int kMostTokens, int kRing, int kAhead, int kAtATime>
struct ProductShape {
  static constexpr int kGroups = kMultiply, kFetchers = kFetch, kTokens = kMostTokens, kPieces = kRing, kChunks = kAhead,
                       kBlocks = kAtATime;
  static constexpr int kThreads = kGroups * 128 + kFetchers + 32, kRows = kGroups * kGroupRows;
  static_assert(kFetchers + 32 == 128, "a warpgroup fetches and passes on");
  // Registers a thread, in eights: what a block of 64 Ki begins with, what those who fetch keep, what is then there for those who multiply.
  // A warpgroup that asked for more than that would wait for ever.
  static constexpr int kAtFirst = 65536 / kThreads / 8 * 8, kToFetch = 80,
                       kToMultiply = (kAtFirst * kThreads - kToFetch * 128) / (kGroups * 128) / 8 * 8;
};

// ---- the activations ----

// Piece q of 16 bytes of a chunk: the instruction's columns lie as pairs (2t, 2t + 1), (2t + 8, 2t + 9) of the quad's lanes, so that piece
// 4 unit + i holds pair i of the unit of lanes 0 to 3.
template <class C>
__global__ void round_for_products_kernel(const float* x, uint4* out, std::int64_t pieces) {
  begin_kernel();
  constexpr int kChunkPieces = C::kColumns / 8;
  const std::int64_t piece = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  const int in_chunk = static_cast<int>(piece % kChunkPieces), t = in_chunk % 4;
  float all[8] = {};
  if (piece < pieces) {
    const auto* at = reinterpret_cast<const float4*>(x + piece / kChunkPieces * C::kColumns + C::column(in_chunk / 4, t));
    const float4 low = at[0], high = at[1];
    all[0] = low.x, all[1] = low.y, all[2] = low.z, all[3] = low.w, all[4] = high.x, all[5] = high.y, all[6] = high.z, all[7] = high.w;
  }
  // Lane t of four has the pairs 0 to 3 of its own columns, and gets pair t of all four lanes' columns.
  std::uint32_t pairs[4], words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = round_pair(all[C::first(i)], all[C::second(i)]);
  const auto pick = [](const std::uint32_t(&from)[4], int i) {
    return i < 2 ? (i == 0 ? from[0] : from[1]) : (i == 2 ? from[2] : from[3]);
  };
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const std::uint32_t got = __shfl_xor_sync(kAllLanes, pick(pairs, t ^ step), step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((t ^ step) == i) words[i] = got;
    }
  }
  if (piece < pieces) out[piece] = make_uint4(words[0], words[1], words[2], words[3]);
}

template <QuantFormat kFormat>
void round_for_products(const float* x, std::uint16_t* out, std::int64_t elements, cudaStream_t stream) {
  launch(round_for_products_kernel<Chunk<kFormat>>, blocks_for(elements / 8, 256), 256, 0, stream, x, reinterpret_cast<uint4*>(out),
         elements / 8);
}

// One of the weights that a launch multiplies the same rows with.
struct ProductPart {
  DeviceWeight w;
  float* y;      // [tokens, w.rows]
  int end_tile;  // of the launch's tiles of rows; its first is where the part before ends
};

// What a launch works on: experts with slots, or parts with all tokens.
struct ProductWork {
  const std::uint16_t* x;      // rounded rows
  float* y;                    // of experts: [slots, rows]
  const std::int32_t* begin;   // of experts, or null
  const std::int32_t* tokens;  // of slots: null if a slot's row is its own
  int count;                   // of tokens of parts
  int tile;                    // tokens a block
  ProductPart parts[LinearGroupArgs::kMostParts];
};

#if RECKONER_HAS_WGMMA

template <class C>
struct ChunkOfRows {
  uint4 codes[C::kPlanes][16][4];
  std::byte scales[16][C::kScaleBytes > 0 ? C::kScaleBytes : 1];
};

template <QuantFormat kFormat, class Shape>
struct ProductShared {
  using C = Chunk<kFormat>;
  uint4 ring[Shape::kPieces][Shape::kTokens][kPieceColumns / 8];  // each piece begins at a multiple of 1024 bytes
  ChunkOfRows<C> weights[Shape::kGroups * 4][Shape::kChunks];
  std::uint32_t scale_pairs[kFormat == QuantFormat::nvfp4 ? 256 : 1];
  std::uint64_t there[Shape::kPieces], full[Shape::kPieces], empty[Shape::kPieces];  // `full`: and the matrix instruction sees it
  ExpertTile tile;
};

struct ProductTile {
  DeviceWeight w;
  float* y;                 // of the first token or slot
  int first_row;            // of the block's
  int first, count;         // tokens or slots
  int first_chunk, chunks;  // of the weight's columns
  int split, splits;
};

// ---- those who fetch tokens ----

template <QuantFormat kFormat, class Shape>
__device__ __forceinline__ void fetch_tokens(const ProductWork& work, const ProductTile& tile, ProductShared<kFormat, Shape>& shared,
                                             int rows) {
  constexpr int kAtOnce = Shape::kFetchers / 8, kEach = (Shape::kTokens + kAtOnce - 1) / kAtOnce,
                kPieces = Chunk<kFormat>::kColumns / kPieceColumns;
  const int thread = static_cast<int>(threadIdx.x) - Shape::kGroups * 128, own = thread % 8;
  const std::uint32_t row_pieces = static_cast<std::uint32_t>(tile.w.cols / 8);
  const auto* base = reinterpret_cast<const std::byte*>(work.x) + std::int64_t{tile.first_chunk} * kPieces * 128 + own * 16;
  std::uint32_t at[kEach];  // in pieces of 16 bytes
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = tile.first + min(thread / 8 + kAtOnce * i, tile.count - 1);
    at[i] = static_cast<std::uint32_t>(work.tokens != nullptr ? work.tokens[token] : token) * row_pieces;
  }
  int slot = 0, parity = 1, count = tile.count;
  for (int piece = 0; piece < tile.chunks * kPieces; ++piece) {
    wait_for_barrier(shared_address(&shared.empty[slot]), parity);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = thread / 8 + kAtOnce * i;
      if (kAtOnce * i >= rows) break;
      make_now(at[i]), make_now(count);  // or all is widened and compared beforehand, and there are too few registers
      if (Shape::kTokens % kAtOnce != 0 && row >= Shape::kTokens) break;
      copy_async(&shared.ring[slot][row][own ^ (row & 7)], base + std::uint64_t{at[i]} * 16, row < count);
    }
    arrive_with_copies(shared_address(&shared.there[slot]));
    base += 128;
    if (++slot == Shape::kPieces) slot = 0, parity ^= 1;
  }
}

// One warp passes on what is there. It has no copies of its own under way, for which the fence would wait.
template <QuantFormat kFormat, class Shape>
__device__ __forceinline__ void pass_on_tokens(const ProductTile& tile, ProductShared<kFormat, Shape>& shared) {
  int slot = 0, parity = 0;
  for (int piece = 0; piece < tile.chunks * (Chunk<kFormat>::kColumns / kPieceColumns); ++piece) {
    wait_for_barrier(shared_address(&shared.there[slot]), parity);
    order_shared_before_products();
    arrive(shared_address(&shared.full[slot]));
    if (++slot == Shape::kPieces) slot = 0, parity ^= 1;
  }
}

// ---- those who multiply ----

// What a warp fetches of its sixteen rows.
template <QuantFormat kFormat, class Shape>
struct WeightStream {
  using C = Chunk<kFormat>;
  const std::byte *low, *high, *scales;
  ChunkOfRows<C>* to;
  int left, ahead = 0;

  __device__ WeightStream(const ProductTile& tile, ProductShared<kFormat, Shape>& shared) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int row = tile.first_row + warp * 16, last = static_cast<int>(tile.w.rows) - 1;
    const std::byte* data = tile.w.data + std::int64_t{tile.first_chunk} * C::kPlanes * 64 + lane % 4 * 16;
    low = data + min(row + lane / 4, last) * tile.w.row_bytes;
    high = data + min(row + 8 + lane / 4, last) * tile.w.row_bytes;
    scales = scales_of_row<kFormat>(tile.w, min(row + lane % 16, last)) + tile.first_chunk * C::kScaleBytes;
    to = shared.weights[warp];
    left = tile.chunks;
  }
  __device__ void fetch() {
    if (left > 0) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      --left;
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        copy_async(&to[ahead].codes[plane][lane / 4][lane % 4], low + plane * 64, true);
        copy_async(&to[ahead].codes[plane][lane / 4 + 8][lane % 4], high + plane * 64, true);
      }
      low += C::kPlanes * 64, high += C::kPlanes * 64;
      if constexpr (C::kScaleBytes > 0) {
        if (lane < 16) copy_few_async<C::kScaleBytes>(to[ahead].scales[lane], scales);
        scales += C::kScaleBytes;
      }
      ahead = ahead == Shape::kChunks - 1 ? 0 : ahead + 1;
    }
    commit_copies();
  }
};

// Planes are loaded when their first unit is decoded.
template <QuantFormat kFormat>
__device__ constexpr int plane_of(int unit) {
  return kFormat == QuantFormat::nvfp4 ? 0 : kFormat == QuantFormat::bf16 ? unit : unit / 2;
}

// Whether one of sixteen codes of E4M3 is NaN.
__device__ inline bool has_bad_code(const uint4& codes) {
  std::uint32_t found = 0;
  for (const std::uint32_t word : {codes.x, codes.y, codes.z, codes.w}) found |= (word & 0x7f7f7f7fu) + 0x01010101u;
  return (found & 0x80808080u) != 0;
}

template <int kColumns, QuantFormat kFormat, class Shape>
__device__ __forceinline__ void multiply(const ProductTile& tile, WeightStream<kFormat, Shape>& stream,
                                         ProductShared<kFormat, Shape>& shared, float (&sums)[kColumns / 2], bool (&bad)[2]) {
  using C = Chunk<kFormat>;
  constexpr bool kIsE4m3 = kFormat == QuantFormat::fp8_block || kFormat == QuantFormat::fp8_channel;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  float chunk_sums[C::kScaled ? kColumns / 2 : 1];
  int weight_slot = 0, slot = 0, parity = 0, last_slot = -1;
  for (int chunk = 0; chunk < tile.chunks; ++chunk) {
    __syncwarp();  // all lanes have read what the next copy overwrites
    stream.fetch();
    wait_for_copies<Shape::kChunks - 1>();
    __syncwarp();
    const ChunkOfRows<C>& from = shared.weights[warp][weight_slot];
    weight_slot = weight_slot == Shape::kChunks - 1 ? 0 : weight_slot + 1;
    C now[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) now[half].take_scales(from.scales[g + half * 8], t, shared.scale_pairs);
    std::uint32_t a[2][8];
    std::uint64_t columns = 0;
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      if (unit == 0 || plane_of<kFormat>(unit) != plane_of<kFormat>(unit - 1)) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          now[half].codes[plane_of<kFormat>(unit)] = from.codes[plane_of<kFormat>(unit)][g + half * 8][t];
          if constexpr (kIsE4m3) bad[half] |= has_bad_code(now[half].codes[plane_of<kFormat>(unit)]);
        }
      }
      std::uint32_t low[4], high[4];
      now[0].pairs(unit, low);
      now[1].pairs(unit, high);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[unit % 2][i * 2] = low[i], a[unit % 2][i * 2 + 1] = high[i];
      if (unit % 2 == 0) {
        wait_for_barrier(shared_address(&shared.full[slot]), parity);
        columns = columns_at(shared_address(&shared.ring[slot][0][0]));
      }
      begin_products();
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const std::uint64_t at = columns + (unit % 2 * 2 + step) * 2;
        if constexpr (C::kScaled) {
          Products<kColumns>::add(chunk_sums, a[unit % 2] + step * 4, at, unit > 0 || step > 0);
        } else {
          Products<kColumns>::add(sums, a[unit % 2] + step * 4, at, 1);
        }
      }
      commit_products();
      // What the next unit but one is decoded into is read no more, nor the piece before.
      wait_for_products<1>();
      if (unit % 2 == 0) {
        if (last_slot >= 0 && lane == 0) arrive(shared_address(&shared.empty[last_slot]));
      } else {
        last_slot = slot;
        if (++slot == Shape::kPieces) slot = 0, parity ^= 1;
      }
    }
    if constexpr (C::kScaled) {
      wait_for_products<0>();
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sums[i] = fmaf(now[i % 4 / 2].scale, chunk_sums[i], sums[i]);
    }
  }
  wait_for_products<0>();
}

template <int kColumns, QuantFormat kFormat, class Shape>
__device__ __forceinline__ void multiply_and_write(const ProductWork& work, const ProductTile& tile, WeightStream<kFormat, Shape>& stream,
                                                   ProductShared<kFormat, Shape>& shared) {
  using C = Chunk<kFormat>;
  constexpr int kRows = Shape::kRows;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int rows = static_cast<int>(tile.w.rows);
  float sums[kColumns / 2] = {};
  bool bad[2] = {};
  multiply<kColumns>(tile, stream, shared, sums, bad);
  let_next_begin();
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(tile.first_row + warp * 16 + half * 8 + g, rows - 1);
    factors[half] = C::kFactor * tile.w.scale;
    if constexpr (kFormat == QuantFormat::fp8_channel) factors[half] *= float_at(scales_of_row<kFormat>(tile.w, row));
    // A row with a code that is NaN is NaN.
    if ((__ballot_sync(kAllLanes, bad[half]) >> (lane & ~3) & 15u) != 0) factors[half] = __uint_as_float(0x7fc00000u);
  }
  float* const y = tile.y;
  if (tile.splits == 1) {
    const int row = tile.first_row + warp * 16 + g;
    float* at = y + std::int64_t{t} * 2 * rows + row;
    int left = tile.count - t * 2;
#pragma unroll
    for (int i = 0; i < kColumns / 2; i += 4, at += 8 * rows, left -= 8) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j % 2 < left && row + j / 2 * 8 < rows) at[j % 2 * rows + j / 2 * 8] = sums[i + j] * factors[j / 2];
      }
    }
    return;
  }
  // The blocks of the cluster add up what each has, in one order, every so manieth token.
  auto* part = reinterpret_cast<float*>(&shared);
  constexpr int kStride = kRows + 4;  // so that what a warp writes at once is in different banks
  static_assert(sizeof(float) * kColumns * kStride <= sizeof(shared.ring) + sizeof(shared.weights));
  meet<Shape::kGroups * 128>();
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    part[(i / 4 * 8 + t * 2 + i % 2) * kStride + warp * 16 + i % 4 / 2 * 8 + g] = sums[i] * factors[i % 4 / 2];
  }
  meet_in_cluster();
  const int own_tokens = (tile.count - tile.split + tile.splits - 1) / tile.splits;
  for (int i = thread; i < own_tokens * (kRows / 4); i += Shape::kGroups * 128) {
    const int token = tile.split + i / (kRows / 4) * tile.splits, row = i % (kRows / 4) * 4;
    float4 of_block[kMostSplits];
#pragma unroll
    for (int block = 0; block < kMostSplits; ++block) {
      of_block[block] = make_float4(0, 0, 0, 0);
      if (block < tile.splits) of_block[block] = load_of_block(shared_address(&part[token * kStride + row]), block);
    }
    float sum[4] = {};
#pragma unroll
    for (int block = 0; block < kMostSplits; ++block) {
      const float4& four = of_block[block];
      sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (tile.first_row + row + j < rows) y[std::int64_t{token} * rows + tile.first_row + row + j] = sum[j];
    }
  }
  meet_in_cluster();
}

// The least of kColumns... that holds the tile's tokens.
template <int kFirst, int... kRest, class Body>
__device__ __forceinline__ void for_columns(int count, Body&& body) {
  if constexpr (sizeof...(kRest) == 0) {
    body.template operator()<kFirst>();
  } else {
    if (count <= kFirst) {
      body.template operator()<kFirst>();
    } else {
      for_columns<kRest...>(count, body);
    }
  }
}

#endif

template <QuantFormat kFormat, class Shape>
constexpr std::int64_t product_shared_bytes() {
  using C = Chunk<kFormat>;
  return std::int64_t{1024} + Shape::kPieces * (Shape::kTokens * 128 + 24) + 1024 + 64 +
         Shape::kGroups * 4 * Shape::kChunks * (C::kPlanes * 1024 + 16 * (C::kScaleBytes > 0 ? C::kScaleBytes : 1));
}

// Grid: row tiles and token tiles, in x and y or (experts) y and x, and in z the blocks of a cluster that share the columns.
template <QuantFormat kFormat, class Shape, int... kColumns>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    products_kernel(const __grid_constant__ DeviceExperts experts, const __grid_constant__ ProductWork work) {
#if RECKONER_HAS_WGMMA
  using C = Chunk<kFormat>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<ProductShared<kFormat, Shape>*>(memory + ((1024 - (shared_address(memory) & 1023)) & 1023));
  static_assert(sizeof(shared) + 1024 <= product_shared_bytes<kFormat, Shape>());
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int i = 0; i < Shape::kPieces; ++i) {
      make_barrier(shared_address(&shared.there[i]), Shape::kFetchers);
      make_barrier(shared_address(&shared.full[i]), 32);
      make_barrier(shared_address(&shared.empty[i]), Shape::kGroups * 4);
    }
    show_new_barriers();
  }
  if constexpr (kFormat == QuantFormat::nvfp4) {
    for (int code = thread; code < 256; code += Shape::kThreads) shared.scale_pairs[code] = C::scale_pair(static_cast<std::uint32_t>(code));
  }
  ProductTile tile;
  if (work.begin == nullptr) {
    int part = 0, row_tile = static_cast<int>(blockIdx.y);
    while (row_tile >= work.parts[part].end_tile) ++part;
    if (part > 0) row_tile -= work.parts[part - 1].end_tile;
    tile.w = work.parts[part].w;
    tile.first_row = row_tile * Shape::kRows;
    tile.first = static_cast<int>(blockIdx.x) * work.tile;
    tile.count = min(work.tile, work.count - tile.first);
    tile.y = work.parts[part].y + tile.first * tile.w.rows;
    __syncthreads();
  } else {
    wait_for_previous();
    const ExpertTile found = find_expert_tile(work.begin, experts.count, work.tile, static_cast<int>(blockIdx.y), shared.tile);
    if (found.expert < 0) return;
    tile.w = expert_weight(experts, found.expert);
    tile.first_row = static_cast<int>(blockIdx.x) * Shape::kRows;
    tile.first = found.first, tile.count = found.count;
    tile.y = work.y + tile.first * tile.w.rows;
  }
  constexpr bool kMoves = Shape::kBlocks == 1;  // registers, from those who fetch to those who multiply
  const int chunks = static_cast<int>(tile.w.cols / C::kColumns);
  tile.splits = static_cast<int>(gridDim.z), tile.split = static_cast<int>(blockIdx.z);
  tile.first_chunk = chunks * tile.split / tile.splits;
  tile.chunks = chunks * (tile.split + 1) / tile.splits - tile.first_chunk;

  if (thread >= Shape::kGroups * 128) {
    if constexpr (kMoves) keep_registers<Shape::kToFetch>();
    if (thread >= Shape::kGroups * 128 + Shape::kFetchers) {
      pass_on_tokens(tile, shared);
    } else {
      wait_for_previous();
      int rows = 0;
      for_columns<kColumns...>(tile.count, [&]<int kCount>() { rows = kCount; });
      fetch_tokens<kFormat, Shape>(work, tile, shared, rows);
    }
    if (tile.splits > 1) {
      meet_in_cluster();
      meet_in_cluster();
    }
  } else {
    if constexpr (kMoves) take_registers<Shape::kToMultiply>();
    WeightStream<kFormat, Shape> stream(tile, shared);
#pragma unroll
    for (int i = 0; i < Shape::kChunks - 1; ++i) stream.fetch();
    wait_for_previous();
    for_columns<kColumns...>(tile.count, [&]<int kCount>() { multiply_and_write<kCount, kFormat, Shape>(work, tile, stream, shared); });
  }
#endif
}

}  // namespace reckoner::cuda
