// linear and linear_group for one or two tokens and BF16 weights, in float: a thread keeps its columns of the tokens in registers, and the
// threads of a block go through its rows one after the other, several rows ahead. A block's rows lie one behind the other: it reads one
// long stretch of memory. Sums are formed in the order of exact_rows.cuh, so that a part that is exact is that here too.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/exact_rows.cuh"
#include "kernels/cuda/linear/few_rows_spread.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = kExactThreads;
constexpr int kMostRows = 64;  // a block
constexpr int kMostPieces = 4;
constexpr int kMostTokens = 2;
constexpr std::int64_t kLeastColumns = 1024;   // with fewer most threads would have none
constexpr std::int64_t kNarrowColumns = 2048;  // up to here a quarter of a block shares a row

// Blocks a multiprocessor, and rows that a thread has under way: what its registers have room for beside its columns of the tokens.
constexpr int blocks_of(int pieces, int tokens) { return pieces * tokens == 8 ? 1 : 2; }
constexpr int ahead_of(int pieces, int tokens) {
  if (pieces == 4) return tokens == 1 ? 3 : 4;
  return pieces == 2 ? 5 : tokens == 1 ? 4 : 3;
}

// kGroup threads share a row, so that each has enough of it to be worth adding up: a block's groups take its rows in turn.
template <int kGroup, int kPieces, int kTokens>
__global__ void __launch_bounds__(kThreads, blocks_of(kPieces, kTokens)) linear_dots_kernel(const __grid_constant__ Spread s) {
  constexpr int kAhead = ahead_of(kPieces, kTokens), kGroups = kThreads / kGroup, kWarps = kGroup / 32;
  __shared__ float partial[kMostRows][kTokens][kWarps];
  __shared__ float squares[kTokens][kWarps];
  int part = 0;
  const int block = static_cast<int>(blockIdx.x), all = static_cast<int>(threadIdx.x);
  const int thread = all % kGroup, group = all / kGroup, warp = thread / 32, lane = thread % 32;
  while (block >= s.parts[part].end_block) ++part;
  const DeviceWeight& w = s.parts[part].w;
  const int first_row = (block - (part == 0 ? 0 : s.parts[part - 1].end_block)) * s.parts[part].rows;
  const int end_row = min(first_row + s.parts[part].rows, static_cast<int>(w.rows)), pieces = static_cast<int>(w.cols / 8);
  const int own_row = first_row + group;

  PlainEight<QuantFormat::bf16> ring[kAhead][kPieces];
  const auto fetch = [&](int row, PlainEight<QuantFormat::bf16>(&to)[kPieces]) {
    if (row >= end_row) return;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (thread + p * kGroup < pieces) to[p].load(w.data + row * w.row_bytes, thread + p * kGroup);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
#pragma unroll
    for (auto& eight : ring[i]) eight.clear();
    fetch(own_row + i * kGroups, ring[i]);
  }
  wait_for_previous();
  let_next_begin();

  float x[kTokens][kPieces][8];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int piece = thread + p * kGroup;
      const bool there = piece < pieces;
      const auto* const at = reinterpret_cast<const float4*>(s.x + t * w.cols) + piece * 2;
      const float4 low = there ? at[0] : make_float4(0, 0, 0, 0), high = there ? at[1] : make_float4(0, 0, 0, 0);
      float(&own)[8] = x[t][p];
      own[0] = low.x, own[1] = low.y, own[2] = low.z, own[3] = low.w, own[4] = high.x, own[5] = high.y, own[6] = high.z, own[7] = high.w;
      if (s.norm == nullptr) continue;
      const auto* const by = reinterpret_cast<const float4*>(s.norm) + piece * 2;
      const float4 a = there ? by[0] : low, b = there ? by[1] : high;
      const float factors[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        sum = fmaf(own[k], own[k], sum);
        own[k] *= factors[k];
      }
    }
    if (s.norm != nullptr) {
      sum = warp_sum(sum);
      if (lane == 0 && group == 0) squares[t][warp] = sum;
    }
  }

  for (int first = own_row; first < end_row; first += kAhead * kGroups) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first + i * kGroups;
      if (row >= end_row) break;
      float sums[kTokens] = {};
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        float weights[8];
        ring[i][p].values(weights);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
#pragma unroll
          for (int k = 0; k < 8; ++k) sums[t] = fmaf(weights[k], x[t][p][k], sums[t]);
        }
      }
      fetch(row + kAhead * kGroups, ring[i]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float sum = warp_sum(sums[t]);
        if (lane == 0) partial[row - first_row][t][warp] = sum;
      }
    }
  }
  __syncthreads();
  const int rows = end_row - first_row;
  for (int i = all; i < rows * kTokens; i += kThreads) {
    const int row = i % rows, token = i / rows;
    float sum = 0, of_norm = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += partial[row][token][other];
    if (s.norm != nullptr) {
#pragma unroll
      for (int other = 0; other < kWarps; ++other) of_norm += squares[token][other];
      sum *= 1.0f / sqrtf(of_norm / static_cast<float>(w.cols) + s.epsilon);
    }
    s.parts[part].y[token * w.rows + first_row + row] = sum * w.scale;
  }
}

// Fills in which rows are whose, so that all blocks run at a time, each with as many rows.
int share_out(Spread& s, std::int64_t blocks) {
  std::int64_t all = 0;
  for (int i = 0; i < s.count; ++i) all += s.parts[i].w.rows;
  std::int64_t rows = (all + blocks - 1) / blocks;
  const auto needed = [&] {
    std::int64_t sum = 0;
    for (int i = 0; i < s.count; ++i) sum += blocks_for(s.parts[i].w.rows, rows);
    return sum;
  };
  while (needed() > blocks && rows < kMostRows) ++rows;
  rows = std::min<std::int64_t>(rows, kMostRows);
  int end = 0;
  for (int i = 0; i < s.count; ++i) {
    s.parts[i].rows = static_cast<int>(rows);
    end += static_cast<int>(blocks_for(s.parts[i].w.rows, rows));
    s.parts[i].end_block = end;
  }
  return end;
}

template <int kGroup, int kPieces, int kTokens>
void launch_dots(Spread& s, int multiprocessors, Lane& lane) {
  const int blocks = share_out(s, multiprocessors * blocks_of(kPieces, kTokens));
  launch(linear_dots_kernel<kGroup, kPieces, kTokens>, static_cast<unsigned>(blocks), kThreads, 0, stream_of(lane), s);
}
template <int kTokens>
void launch_tokens(Spread& s, int multiprocessors, Lane& lane) {
  const std::int64_t cols = s.parts[0].w.cols;
  if (cols <= kNarrowColumns) return launch_dots<64, 4, kTokens>(s, multiprocessors, lane);
  if (cols <= 2 * kThreads * 8) return launch_dots<kThreads, 2, kTokens>(s, multiprocessors, lane);
  if (cols <= 3 * kThreads * 8) return launch_dots<kThreads, 3, kTokens>(s, multiprocessors, lane);
  launch_dots<kThreads, 4, kTokens>(s, multiprocessors, lane);
}

}  // namespace

bool fits_linear_dots(Precision precision, QuantFormat format, std::int64_t tokens, std::int64_t cols) {
  // Narrow ones are added up in another order than that of exact_rows.cuh.
  if (precision == Precision::exact && cols <= kNarrowColumns) return false;
  return format == QuantFormat::bf16 && tokens <= kMostTokens && cols % 8 == 0 && cols >= kLeastColumns &&
         cols <= std::int64_t{kThreads} * 8 * kMostPieces;
}

void run_linear_dots(Spread& s, int multiprocessors, Lane& lane) {
  if (s.tokens == 1) return launch_tokens<1>(s, multiprocessors, lane);
  launch_tokens<2>(s, multiprocessors, lane);
}

}  // namespace reckoner::cuda
