// The scores of index_select for BF16 keys of 128 elements (what all published models have), through the matrix instruction: a warp takes
// sixteen keys straight from memory. Queries are three BF16 numbers each: products are exact, sums are float.
#include "kernels/cuda/attention/index_scores.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kParts = 3;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kGroups = 2;  // of sixteen keys, a warp
constexpr int kBlockKeys = kWarps * kGroups * 16;
constexpr int kPieces = kDim / 8;

struct IndexScores {
  const float* q;        // [tokens, heads, 128]
  const float* weights;  // [tokens, heads]
  float scale;
  DeviceCache keys;
  int heads, top_k;
  float* scores;  // [tokens, stride]
  std::int64_t stride;
};

// Eight columns of a head as operands; so placed that what a warp reads at once is in different banks.
__device__ int place_of(int head, int piece) { return head * kPieces + (piece ^ (head & 1) << 2); }

__global__ void __launch_bounds__(kThreads) index_scores_mma_kernel(IndexScores args) {
  begin_kernel();
  uint4* const q = dynamic_shared<uint4>();  // [kParts][heads * 16 pieces], then the weights
  float* weights = reinterpret_cast<float*>(q + kParts * args.heads * kPieces);
  const std::int64_t token = blockIdx.y;
  const int context = args.keys.positions[token] + 1, block_first = static_cast<int>(blockIdx.x) * kBlockKeys;
  if (context <= args.top_k || block_first >= context) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  for (int i = static_cast<int>(threadIdx.x); i < args.heads * kPieces; i += kThreads) {
    const float* from = args.q + token * args.heads * kDim + i * 8;
    std::uint32_t pairs[kParts][4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t parts[kParts];
      split_pair<kParts>(from[2 * pair], from[2 * pair + 1], parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) pairs[part][pair] = parts[part];
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      q[part * args.heads * kPieces + place_of(i / kPieces, i % kPieces)] =
          make_uint4(pairs[part][0], pairs[part][1], pairs[part][2], pairs[part][3]);
    }
  }
  for (int head = static_cast<int>(threadIdx.x); head < args.heads; head += kThreads) {
    weights[head] = args.weights[token * args.heads + head] * args.scale;
  }
  __syncthreads();
  for (int group = 0; group < kGroups; ++group) {
    const int first = block_first + (group * kWarps + warp) * 16;
    if (first >= context) break;
    uint4 low[4], high[4];  // of the keys g and g + 8; a group lies in one page
    const std::byte* page = cache_row(args.keys, token, first);
    const auto load = [&](int key, uint4(&to)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[i] = make_uint4(0, 0, 0, 0);
        if (first + key < context) to[i] = *reinterpret_cast<const uint4*>(page + key * args.keys.row_bytes + i * 64 + t * 16);
      }
    };
    load(g, low);
    load(g + 8, high);
    float sums[2] = {};  // of the keys g and g + 8 over the lane's heads
    for (int tile = 0; tile < args.heads / 8; ++tile) {
      float dots[4] = {};
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint4 b = q[part * args.heads * kPieces + place_of(tile * 8 + g, i * 4 + t)];
          mma_bf16(dots, low[i].x, high[i].x, low[i].y, high[i].y, b.x, b.y);
          mma_bf16(dots, low[i].z, high[i].z, low[i].w, high[i].w, b.z, b.w);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // A comparison with NaN is false: it stays one.
        sums[i / 2] = fmaf(weights[tile * 8 + t * 2 + i % 2], dots[i] < 0 ? 0.0f : dots[i], sums[i / 2]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sums[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int key = first + half * 8 + g;
      if (t == 0 && key < context) args.scores[token * args.stride + key] = sum;
    }
  }
}

}  // namespace

bool fits_index_mma(const IndexSelectArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  return args.q.dim(2) == kDim && heads % 8 == 0 && heads <= kMostIndexHeads && args.keys.dtype == DType::bf16 &&
         args.keys.page_bytes % 16 == 0 && args.keys.offset_bytes % 16 == 0;
}

void index_scores_mma(const IndexSelectArgs& args, const DeviceCache& keys, std::int64_t first, std::int64_t tokens, float* scores,
                      cudaStream_t stream) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t shared = kParts * heads * kDim * 2 + heads * 4;
  allow_shared(index_scores_mma_kernel, shared);
  const dim3 grid(blocks_for(args.max_context, kBlockKeys), static_cast<unsigned>(tokens));
  launch(index_scores_mma_kernel, grid, kThreads, shared, stream,
         {.q = args.q.f32() + first * heads * kDim,
          .weights = args.weights.f32() + first * heads,
          .scale = args.scale,
          .keys = keys,
          .heads = static_cast<int>(heads),
          .top_k = static_cast<int>(args.selection.top_k()),
          .scores = scores,
          .stride = args.max_context});
}

}  // namespace reckoner::cuda
