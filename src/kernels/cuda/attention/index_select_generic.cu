// index_select for any shape and cache dtype, in float: a thread scores a position for a quarter of the heads, unless the shape allows the
// matrix instruction; then the best are selected.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/index_scores.cuh"
#include "kernels/cuda/attention/select_top_k.cuh"
#include "kernels/cuda/common/cache.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kKeys = 64;  // a block
constexpr int kParts = 4;  // of the heads
constexpr int kThreads = kKeys * kParts;

struct IndexScores {
  const float* q;        // [tokens, heads, dim]
  const float* weights;  // [tokens, heads]
  float scale;
  DeviceCache keys;
  int heads, dim, top_k;
  float* scores;  // [tokens, stride]
  std::int64_t stride;
};

std::int64_t shared_bytes(std::int64_t heads, std::int64_t dim) { return 4 * (heads * dim + kKeys * (dim + 1)); }

__global__ void __launch_bounds__(kThreads) index_scores_kernel(IndexScores args) {
  begin_kernel();
  float* const memory = dynamic_shared<float>();  // q [heads, dim], keys [kKeys, dim + 1]
  __shared__ float parts[kParts][kKeys];
  float* q = memory;
  float* keys = memory + args.heads * args.dim;
  const std::int64_t token = blockIdx.y;
  const int context = args.keys.positions[token] + 1, first = static_cast<int>(blockIdx.x) * kKeys;
  if (context <= args.top_k || first >= context) return;
  const int thread = static_cast<int>(threadIdx.x), tile = min(kKeys, context - first);
  for (int i = thread; i < args.heads * args.dim; i += kThreads) q[i] = args.q[token * args.heads * args.dim + i];
  for (int key = thread / 32; key < tile; key += kThreads / 32) {
    const std::byte* row = cache_row(args.keys, token, first + key);
    for (int i = thread % 32; i < args.dim; i += 32) keys[key * (args.dim + 1) + i] = cache_element(args.keys, row, i);
  }
  __syncthreads();
  const int key = thread % kKeys, part = thread / kKeys;
  float score = 0;
  for (int head = part; head < args.heads && key < tile; head += kParts) {
    float dot = 0;
    for (int i = 0; i < args.dim; ++i) dot = fmaf(q[head * args.dim + i], keys[key * (args.dim + 1) + i], dot);
    // A comparison with NaN is false: it stays one.
    score += args.weights[token * args.heads + head] * args.scale * (dot < 0 ? 0.0f : dot);
  }
  parts[part][key] = score;
  __syncthreads();
  if (thread < tile) {
    args.scores[token * args.stride + first + thread] = (parts[0][thread] + parts[1][thread]) + (parts[2][thread] + parts[3][thread]);
  }
}

std::int64_t tokens_at_once(const IndexSelectArgs& args) {
  constexpr std::int64_t kMostBytes = 128 << 20;
  return std::clamp<std::int64_t>(kMostBytes / (4 * std::max<std::int64_t>(args.max_context, 1)), 1, args.q.dim(0));
}

std::int64_t workspace(const IndexSelectArgs& args, int) { return tokens_at_once(args) * args.max_context * 4; }

void run(const IndexSelectArgs& args, Lane& lane) {
  const std::int64_t tokens = args.q.dim(0), heads = args.q.dim(1), dim = args.q.dim(2), top_k = args.selection.top_k();
  const bool with_mma = fits_index_mma(args);
  const std::int64_t shared = shared_bytes(heads, dim);
  CHECK(with_mma || shared <= kPortableSharedBytes - 2048, "index heads are too wide for shared memory");
  if (!with_mma) allow_shared(index_scores_kernel, shared);
  const std::int64_t at_once = tokens_at_once(args);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    DeviceCache keys = device_cache(args.keys, args.places);
    keys.table += first * keys.table_width;
    keys.positions += first;
    const IndexScores scores{.q = args.q.f32() + first * heads * dim,
                             .weights = args.weights.f32() + first * heads,
                             .scale = args.scale,
                             .keys = keys,
                             .heads = static_cast<int>(heads),
                             .dim = static_cast<int>(dim),
                             .top_k = static_cast<int>(top_k),
                             .scores = reinterpret_cast<float*>(lane.workspace),
                             .stride = args.max_context};
    const dim3 grid(blocks_for(args.max_context, kKeys), static_cast<unsigned>(some));
    if (args.max_context > top_k && with_mma) {
      index_scores_mma(args, keys, first, some, scores.scores, stream_of(lane));
    } else if (args.max_context > top_k) {
      launch(index_scores_kernel, grid, kThreads, shared, stream_of(lane), scores);
    }
    select_top_k(scores.scores, scores.stride, keys.positions, some, top_k, args.selection.counts.i32() + first,
                 args.selection.positions.i32() + first * top_k, stream_of(lane));
  }
}

}  // namespace

Kernel<IndexSelectArgs> index_select_generic() { return {"index_select.cuda", supports_any<kPortableSharedBytes>, workspace, run}; }

}  // namespace reckoner::cuda
