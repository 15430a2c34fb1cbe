// linear and linear_group in `fast` for up to eight tokens: each block has as many rows as every other and all columns, so that the device
// reads all of its weights at once and is done at once. They go straight into registers, many steps ahead; the first are asked for
// before the kernels ahead have ended. The warps of a block share the columns of sixteen rows at a time, and their sums are added in order.
// A norm of the input is a factor of the sums: nothing waits for it.
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/exact_rows.cuh"
#include "kernels/cuda/linear/few_rows.cuh"
#include "kernels/cuda/linear/few_rows_spread.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
static_assert(kThreads == kExactThreads, "a block's rows in float are for all of its threads");
constexpr int kRows = 16;      // of a tile
constexpr int kFewTokens = 2;  // that each block rounds for itself
constexpr std::int64_t kColumnsMultiple = 128;
// Blocks a multiprocessor, measured: where there is little to read, half as many are done sooner.
constexpr int blocks_of(QuantFormat format, std::int64_t cols) { return format == QuantFormat::nvfp4 && cols <= 2048 ? 1 : 2; }

// Steps that a warp has under way: of one chunk of sixteen rows each.
constexpr int depth_of(QuantFormat format) { return format == QuantFormat::nvfp4 ? 6 : format == QuantFormat::fp8_block ? 3 : 4; }

// Where the operands of a lane lie one after the other, a quad's beside each other: unit u of lane t at 4 u + t of its chunk.
template <class C>
__device__ int slot_of_piece(int piece) {
  constexpr int kPieces = C::kColumns / 8;
  const int in = piece % kPieces, first = piece - in;
  if constexpr (C::kUnits == 2) return piece;
  if constexpr (C::kPlanes == 1) return first + in % 4 * 4 + in / 4;
  return first + (in / 8 * 2 + in % 2) * 4 + in / 2 % 4;
}
// Uint4s from one token's to the next, so that two tokens' do not meet in one bank.
__host__ __device__ constexpr int token_stride(int cols) { return cols / 8 + 4; }

struct alignas(16) SpreadShared {
  float squares[kWarps][kFewTokens];
  float inverse[kTokens];
  std::uint32_t scale_pairs[256];
};
// Behind it: activations, [tokens][token_stride] uint4; partial sums, [tiles][share][tokens][16] floats.

__device__ inline float4 times(const float4& a, const float4& b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
__device__ inline float add_squares(float sum, const float4& a) {
  return fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, sum))));
}

// Puts the activations of all tokens where the warps read them: rounded, and with a norm times its weights.
template <class C>
__device__ void place_tokens(const Spread& s, int cols, uint4* to, SpreadShared& shared) {
  const int pieces = cols / 8, stride = token_stride(cols), thread = static_cast<int>(threadIdx.x);
  if (s.rounded != nullptr) {
    for (int i = thread; i < s.tokens * pieces; i += kThreads) copy_async(&to[i / pieces * stride + i % pieces], s.rounded + i, true);
    commit_copies();
    wait_for_copies<0>();
    return;
  }
  constexpr int kAtOnce = 3;
  const auto* const norm = reinterpret_cast<const float4*>(s.norm);
#pragma unroll
  for (int token = 0; token < kFewTokens; ++token) {
    if (token >= s.tokens) break;
    const auto* const x = reinterpret_cast<const float4*>(s.x) + token * pieces * 2;
    float squares = 0;
    for (int first = thread; first < pieces; first += kAtOnce * kThreads) {
      float4 low[kAtOnce], high[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads;
        low[i] = high[i] = make_float4(0, 0, 0, 0);
        if (piece < pieces) low[i] = x[2 * piece], high[i] = x[2 * piece + 1];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads;
        if (piece >= pieces) continue;
        if (norm != nullptr) {
          squares = add_squares(add_squares(squares, low[i]), high[i]);
          low[i] = times(low[i], norm[2 * piece]), high[i] = times(high[i], norm[2 * piece + 1]);
        }
        to[token * stride + slot_of_piece<C>(piece)] = round_piece<C>(low[i], high[i]);
      }
    }
    if (norm != nullptr) {
      squares = warp_sum(squares);
      if (thread % 32 == 0) shared.squares[thread / 32][token] = squares;
    }
  }
}

// A lane's part of a step on its way: of rows g and g + 8.
template <class C>
struct Step {
  C rows[2];
  std::uint32_t scales[2];
};

// Where a warp's next step is. Rows that do not exist are zeros.
template <QuantFormat kFormat>
struct Aim {
  using C = Chunk<kFormat>;
  const DeviceWeight& w;
  int first_row, end_row;
  const std::byte* codes[2];
  const std::byte* scales[2];
  bool there[2];
  __device__ void at(int tile, int g, int t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + tile * kRows + half * 8 + g;
      there[half] = row < end_row;
      codes[half] = w.data + row * w.row_bytes + t * 16;
      scales[half] = scales_of_row<kFormat>(w, row);
    }
  }
  __device__ void fetch(Step<C>& step, int chunk, int t) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        step.rows[half].codes[plane] = make_uint4(0, 0, 0, 0);
        if (there[half]) step.rows[half].codes[plane] = load_once(codes[half] + (chunk * C::kPlanes + plane) * 64);
      }
      step.scales[half] = 0;
      if (C::kScaleBytes > 0 && there[half]) step.scales[half] = C::fetch_scales(scales[half] + chunk * C::kScaleBytes, t);
    }
  }
};

// y[t][row] for the rows [first_row, end_row).
template <QuantFormat kFormat>
__device__ void spread_rows(const Spread& s, const DeviceWeight& w, float* y, int first_row, int end_row, SpreadShared& shared) {
  using C = Chunk<kFormat>;
  constexpr int kDepth = depth_of(kFormat);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int cols = static_cast<int>(w.cols), chunks = cols / C::kColumns, tiles = (end_row - first_row + kRows - 1) / kRows;
  const int own = warp % s.share, group = warp / s.share, groups = kWarps / s.share;
  const int own_chunks = (chunks - own + s.share - 1) / s.share, own_tiles = (max(tiles - group, 0) + groups - 1) / groups;
  const int steps = own_chunks * own_tiles;
  auto* const x = reinterpret_cast<uint4*>(&shared + 1);
  auto* const partial = reinterpret_cast<float*>(x + s.tokens * token_stride(cols));

  Step<C> ring[kDepth];
  Aim<kFormat> aim{.w = w, .first_row = first_row, .end_row = end_row};
  int ahead_tile = group, ahead_chunk = own, left = steps;
  aim.at(ahead_tile, g, t);
  const auto fetch = [&](Step<C>& step) {
    if (left-- <= 0) return;
    aim.fetch(step, ahead_chunk, t);
    ahead_chunk += s.share;
    if (ahead_chunk >= chunks) {
      ahead_chunk = own;
      ahead_tile += groups;
      aim.at(ahead_tile, g, t);
    }
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) fetch(ring[i]);
  if constexpr (kFormat == QuantFormat::nvfp4) shared.scale_pairs[threadIdx.x] = C::scale_pair(threadIdx.x);
  wait_for_previous();
  let_next_begin();  // its first weights find room for themselves only where a block of ours has ended
  place_tokens<C>(s, cols, x, shared);
  __syncthreads();

  const uint4* const token = x + g * token_stride(cols) + t;
  float sums[4] = {};
  bool bad[2] = {};
  int tile = group, chunk = own;
  for (int first = 0; first < steps; first += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (first + i >= steps) break;
      Step<C>& now = ring[i];
      float chunk_sums[4] = {};
      float(&into)[4] = C::kScaled ? chunk_sums : sums;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        now.rows[half].take_fetched(now.scales[half], shared.scale_pairs);
        bad[half] |= now.rows[half].is_bad();
      }
#pragma unroll
      for (int unit = 0; unit < C::kUnits; ++unit) {
        std::uint32_t low[4], high[4];
        uint4 b = make_uint4(0, 0, 0, 0);
        if (g < s.tokens) b = token[(chunk * C::kUnits + unit) * 4];
        now.rows[0].pairs(unit, low);
        now.rows[1].pairs(unit, high);
        mma_bf16(into, low[0], high[0], low[1], high[1], b.x, b.y);
        mma_bf16(into, low[2], high[2], low[3], high[3], b.z, b.w);
      }
      if constexpr (C::kScaled) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[k] = fmaf(now.rows[k / 2].scale, chunk_sums[k], sums[k]);
      }
      fetch(now);
      chunk += s.share;
      if (chunk < chunks) continue;
      spoil_bad_rows(bad, sums);
      bad[0] = bad[1] = false;
      float* const to = partial + (tile * s.share + own) * s.tokens * kRows;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (t * 2 + k % 2 < s.tokens) to[(t * 2 + k % 2) * kRows + k / 2 * 8 + g] = sums[k];
        sums[k] = 0;
      }
      chunk = own;
      tile += groups;
    }
  }
  __syncthreads();
  const int rows = end_row - first_row;
  for (int i = static_cast<int>(threadIdx.x); i < s.tokens * rows; i += kThreads) {
    const int of = i / rows, row = i % rows;
    const float* from = partial + (row / kRows * s.share * s.tokens + of) * kRows + row % kRows;
    float sum = 0;
    for (int other = 0; other < s.share; ++other) sum += from[other * s.tokens * kRows];
    if constexpr (kFormat == QuantFormat::fp8_channel) sum *= float_at(scales_of_row<kFormat>(w, first_row + row));
    if (s.norm != nullptr && s.rounded == nullptr) {
      float squares = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) squares += shared.squares[other][of];
      sum *= 1.0f / sqrtf(squares / static_cast<float>(cols) + s.epsilon);
    }
    y[of * w.rows + first_row + row] = sum * (C::kFactor * w.scale);
  }
}

// Blocks that a multiprocessor should hold; what compute capability 12.0 makes of it would spill with two.
#if __CUDA_ARCH__ >= 1000
#define RECKONER_SPREAD_BLOCKS 1
#else
#define RECKONER_SPREAD_BLOCKS 2
#endif

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads, RECKONER_SPREAD_BLOCKS) linear_spread_kernel(const __grid_constant__ Spread s) {
  unsigned char* const memory = dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<SpreadShared*>(memory);
  int part = 0;
  const int block = static_cast<int>(blockIdx.x);
  while (block >= s.parts[part].end_block) ++part;
  const SpreadPart& own = s.parts[part];
  const int first_row = (block - (part == 0 ? 0 : s.parts[part - 1].end_block)) * own.rows;
  if (part < s.rounded_parts) {
    const int end_row = min(first_row + own.rows, static_cast<int>(own.w.rows));
    spread_rows<kFormat>(s, own.w, own.y, first_row, end_row, shared);
  } else if constexpr (kFormat == QuantFormat::bf16) {
    if (s.tokens == 1) {
      exact_rows<kFormat, 2, 1>(own.w, first_row, s.x, 1, *reinterpret_cast<float(*)[kExactWarps][2]>(memory), own.y);
    } else {
      exact_rows<kFormat, 2, 4>(own.w, first_row, s.x, min(s.tokens, 4), *reinterpret_cast<float(*)[kExactWarps][8]>(memory), own.y);
      __syncthreads();
      if (s.tokens > 4)
        exact_rows<kFormat, 2, 4>(own.w, first_row, s.x + 4 * own.w.cols, s.tokens - 4, *reinterpret_cast<float(*)[kExactWarps][8]>(memory),
                                  own.y + 4 * own.w.rows);
    }
  }
}

// ---- more than a few tokens: normalised and rounded once ----

constexpr int kRoundThreads = 256;

// A block a token.
template <class C>
__global__ void __launch_bounds__(kRoundThreads)
    round_tokens_kernel(const float* x, const float* norm, float epsilon, uint4* out, int pieces) {
  __shared__ float scratch[kRoundThreads / 32];
  begin_kernel();
  const auto* const row = reinterpret_cast<const float4*>(x) + std::int64_t{blockIdx.x} * pieces * 2;
  const auto* const weights = reinterpret_cast<const float4*>(norm);
  float inverse = 1;
  if (norm != nullptr) {
    float squares = 0;
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kRoundThreads)
      squares = add_squares(add_squares(squares, row[2 * piece]), row[2 * piece + 1]);
    inverse = 1.0f / sqrtf(block_sum<kRoundThreads>(squares, scratch) / static_cast<float>(pieces * 8) + epsilon);
  }
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kRoundThreads) {
    float4 low = row[2 * piece], high = row[2 * piece + 1];
    if (norm != nullptr) {
      const float4 all = make_float4(inverse, inverse, inverse, inverse);
      low = times(times(low, all), weights[2 * piece]), high = times(times(high, all), weights[2 * piece + 1]);
    }
    out[std::int64_t{blockIdx.x} * pieces + slot_of_piece<C>(piece)] = round_piece<C>(low, high);
  }
}

// ---- launching ----

// What a block may have here: the portable kernels' bound, or more where there is.
std::int64_t most_shared_bytes() {
  static const std::int64_t bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return std::min<std::int64_t>(bytes, 112 << 10);  // so that two blocks are there at a time
}

// A power of two, so that each warp has a chunk at least.
int share_of(QuantFormat format, std::int64_t cols) {
  const std::int64_t chunks = cols / (format == QuantFormat::bf16 ? 64 : 128);
  int share = kWarps;
  while (share > chunks) share /= 2;
  return share;
}

std::int64_t shared_bytes(const Spread& s, int most_rows) {
  const int cols = static_cast<int>(s.parts[0].w.cols);
  return static_cast<std::int64_t>(sizeof(SpreadShared)) + std::int64_t{s.tokens} * token_stride(cols) * 16 +
         round_up(most_rows, kRows) * s.share * s.tokens * 4;
}

std::int64_t rounded_bytes(std::int64_t tokens, std::int64_t cols) { return tokens > kFewTokens ? tokens * cols * 2 : 0; }

// So that all blocks of the rounded parts run at a time, each with as many rows.
int rows_each(const Spread& s, int blocks) {
  std::int64_t all = 0;
  for (int i = 0; i < s.rounded_parts; ++i) all += s.parts[i].w.rows;
  for (std::int64_t rows = (all + blocks - 1) / blocks;; ++rows) {
    std::int64_t needed = 0;
    for (int i = 0; i < s.rounded_parts; ++i) needed += (s.parts[i].w.rows + rows - 1) / rows;
    if (needed <= blocks || rows >= all) return static_cast<int>(rows);
  }
}

template <QuantFormat kFormat>
void launch_spread(Spread& s, Lane& lane) {
  const int cols = static_cast<int>(s.parts[0].w.cols);
  if (s.tokens > kFewTokens) {
    auto* const rounded = reinterpret_cast<uint4*>(lane.workspace);
    launch(round_tokens_kernel<Chunk<kFormat>>, static_cast<unsigned>(s.tokens), kRoundThreads, 0, stream_of(lane), s.x, s.norm, s.epsilon,
           rounded, cols / 8);
    s.rounded = rounded;
  }
  int rows = rows_each(s, multiprocessors() * blocks_of(kFormat, cols)), end = 0;
  while (rows > 1 && shared_bytes(s, rows) > most_shared_bytes()) rows = rows > kRows ? rows - kRows : rows - 1;
  for (int i = 0; i < s.count; ++i) {
    s.parts[i].rows = i < s.rounded_parts ? rows : 2;
    end += static_cast<int>(blocks_for(s.parts[i].w.rows, s.parts[i].rows));
    s.parts[i].end_block = end;
  }
  const std::int64_t shared = shared_bytes(s, rows);
  allow_shared(linear_spread_kernel<kFormat>, shared);
  launch(linear_spread_kernel<kFormat>, static_cast<unsigned>(end), kThreads, shared, stream_of(lane), s);
}

bool fits(const Weight& w, std::int64_t tokens) {
  return has_chunks(w.format) && w.cols % kColumnsMultiple == 0 && tokens <= kTokens && w.rows < (1 << 30) &&
         static_cast<std::int64_t>(sizeof(SpreadShared)) + tokens * (w.cols * 2 + 64 + kRows * kWarps * 4) <= most_shared_bytes();
}

}  // namespace

// Measured (bench/results): elsewhere the ways that were there before are as quick.
bool fits_linear_spread(const LinearArgs& args) {
  const std::int64_t tokens = args.x.dim(0), cols = args.w.cols;
  if (fits_linear_dots(args.precision, args.w.format, tokens, cols)) return true;
  if (args.w.format == QuantFormat::bf16 ? cols > 2048 : tokens > kFewTokens) return false;
  const bool is_small = cols > 2048 && args.w.rows < 1024;
  return cols >= 1024 && cols <= 8192 && (args.w.format == QuantFormat::bf16 || !is_small) && fits(args.w, tokens);
}
std::int64_t linear_spread_workspace(const LinearArgs& args) { return rounded_bytes(args.x.dim(0), args.w.cols); }

void run_linear_spread(const LinearArgs& args, Lane& lane) {
  LinearGroupArgs group{.x = args.x, .norm = {}, .epsilon = 0, .count = 1, .parts = {}};
  group.parts[0] = {.w = args.w, .y = args.y, .precision = args.precision};
  run_linear_spread(group, lane);
}

// All of its parts.
static bool fits_dots(const LinearGroupArgs& args) {
  for (int i = 0; i < args.count; ++i) {
    const LinearPart& part = args.parts[static_cast<std::size_t>(i)];
    if (!fits_linear_dots(part.precision, part.w.format, args.x.dim(0), args.x.dim(1))) return false;
  }
  return true;
}

bool fits_linear_spread(const LinearGroupArgs& args) {
  const QuantFormat format = args.parts[0].w.format;
  const bool dots = fits_dots(args);
  for (int i = 0; i < args.count; ++i) {
    const LinearPart& part = args.parts[static_cast<std::size_t>(i)];
    if (part.w.format != format || !(dots || fits(part.w, args.x.dim(0)))) return false;
    if (part.precision == Precision::fast) continue;
    if (format != QuantFormat::bf16 || !fits_exact_rows(part.w) || args.norm.shape.rank() != 0) return false;
  }
  return true;
}
std::int64_t linear_spread_workspace(const LinearGroupArgs& args) { return rounded_bytes(args.x.dim(0), args.x.dim(1)); }

void run_linear_spread(const LinearGroupArgs& args, Lane& lane) {
  Spread s{};
  for (const Precision precision : {Precision::fast, Precision::exact}) {
    for (int i = 0; i < args.count; ++i) {
      const LinearPart& part = args.parts[static_cast<std::size_t>(i)];
      if (part.precision == precision) s.parts[s.count++] = {.w = device_weight(part.w), .y = part.y.f32(), .rows = 0, .end_block = 0};
    }
    if (precision == Precision::fast) s.rounded_parts = s.count;
  }
  s.x = args.x.f32();
  s.norm = args.norm.empty() ? nullptr : args.norm.f32();
  s.epsilon = args.epsilon;
  s.tokens = static_cast<int>(args.x.dim(0));
  const QuantFormat format = args.parts[0].w.format;
  s.share = share_of(format, args.x.dim(1));
  if (fits_dots(args)) return run_linear_dots(s, multiprocessors(), lane);
  for_chunk_format(format, [&]<QuantFormat kFormat>() { launch_spread<kFormat>(s, lane); });
}

}  // namespace reckoner::cuda
