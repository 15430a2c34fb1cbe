// attend_latent and attend_grouped for any shape and cache dtype, in float: an online softmax over tiles of keys, a block for a few heads
// and a piece of the sequence. The latent cache is one head of keys whose beginnings are the values.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/split.cuh"
#include "kernels/cuda/common/cache.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kHeads = 8;      // a block
constexpr int kTileKeys = 16;  // at most
constexpr int kThreads = kHeads * kTileKeys;
constexpr int kColumnsEach = 4;  // values that a thread sums
constexpr int kColumns = kThreads * kColumnsEach;

struct Attend {
  const float* q;  // [tokens, heads, width]
  DeviceCache keys, values;
  const std::int32_t* counts;    // [tokens], or null: everything up to the token
  const std::int32_t* selected;  // [tokens, top_k]
  std::int64_t top_k;
  float scale;
  std::int64_t heads, kv_heads, width, value_width;
  Split split;
  int tile_keys;
};

std::int64_t shared_bytes(std::int64_t width, std::int64_t tile_keys) { return 4 * (kHeads * width + tile_keys * (width + 1)); }

int tile_keys_for(std::int64_t width) {
  int keys = kTileKeys;
  while (keys > 1 && shared_bytes(width, keys) > kPortableSharedBytes - 2048) keys /= 2;
  CHECK(shared_bytes(width, keys) <= kPortableSharedBytes - 2048, "heads are too wide for shared memory");
  return keys;
}

// Grid: pieces * chunks of value columns, groups of heads, tokens. Thread (h, s) of the first kHeads * kTileKeys scores key s for head h.
__global__ void __launch_bounds__(kThreads, 2) attend_kernel(Attend args, Partials partials) {
  begin_kernel();
  float* const memory = dynamic_shared<float>();  // q [kHeads, width], keys [tile_keys, width + 1]
  __shared__ float weights[kHeads][kTileKeys], factors[kHeads];
  __shared__ const std::byte* value_rows[kTileKeys];
  float* q = memory;
  float* keys = memory + kHeads * args.width;
  const std::int64_t token = blockIdx.z, piece = blockIdx.x % args.split.pieces, chunk = blockIdx.x / args.split.pieces;
  const std::int64_t group = args.heads / args.kv_heads, groups = (group + kHeads - 1) / kHeads;
  const std::int64_t kv_head = blockIdx.y / groups, first_head = kv_head * group + blockIdx.y % groups * kHeads;
  const int heads = static_cast<int>(min(static_cast<long long>(kHeads), static_cast<long long>((kv_head + 1) * group - first_head)));
  const std::int64_t count = args.counts != nullptr ? args.counts[token] : args.keys.positions[token] + 1;
  const std::int64_t begin = piece * args.split.length;
  const std::int64_t end = min(static_cast<long long>(begin + args.split.length), static_cast<long long>(count));
  if (begin >= end) return;

  const int thread = static_cast<int>(threadIdx.x), h = thread / kTileKeys, s = thread % kTileKeys;
  const int key_first = static_cast<int>(kv_head * args.width), value_first = static_cast<int>(kv_head * args.value_width);
  for (std::int64_t i = thread; i < heads * args.width; i += kThreads) q[i] = args.q[(token * args.heads + first_head) * args.width + i];
  float largest = -INFINITY, sum = 0, sums[kHeads][kColumnsEach] = {};
  for (std::int64_t first = begin; first < end; first += args.tile_keys) {
    const int tile = static_cast<int>(min(static_cast<long long>(args.tile_keys), static_cast<long long>(end - first)));
    __syncthreads();
    for (int key = thread / 32; key < tile; key += kThreads / 32) {
      const std::int64_t position = args.counts != nullptr ? args.selected[token * args.top_k + first + key] : first + key;
      const std::byte* row = cache_row(args.keys, token, position);
      if (thread % 32 == 0) value_rows[key] = cache_row(args.values, token, position);
      for (int i = thread % 32; i < args.width; i += 32) keys[key * (args.width + 1) + i] = cache_element(args.keys, row, key_first + i);
    }
    __syncthreads();
    float score = -INFINITY;
    if (s < tile && h < heads) {
      score = 0;
      for (int i = 0; i < args.width; ++i) score = fmaf(q[h * args.width + i], keys[s * (args.width + 1) + i], score);
      score *= args.scale;
    }
    float tile_largest = score;
    for (int step = kTileKeys / 2; step > 0; step /= 2) tile_largest = fmaxf(tile_largest, __shfl_xor_sync(kAllLanes, tile_largest, step));
    const float new_largest = fmaxf(largest, tile_largest);
    const float factor = first == begin ? 0.0f : expf(largest - new_largest);
    const float weight = s < tile && h < heads ? expf(score - new_largest) : 0.0f;
    float tile_sum = weight;
    for (int step = kTileKeys / 2; step > 0; step /= 2) tile_sum += __shfl_xor_sync(kAllLanes, tile_sum, step);
    sum = sum * factor + tile_sum;
    largest = new_largest;
    weights[h][s] = weight;
    if (s == 0) factors[h] = factor;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kColumnsEach; ++j) {
      const int column = static_cast<int>(chunk) * kColumns + j * kThreads + thread;
      if (column >= args.value_width) continue;
      for (int n = 0; n < kHeads; ++n) sums[n][j] *= factors[n];
      for (int key = 0; key < tile; ++key) {
        const float value = cache_element(args.values, value_rows[key], value_first + column);
#pragma unroll
        for (int n = 0; n < kHeads; ++n) sums[n][j] = fmaf(weights[n][key], value, sums[n][j]);
      }
    }
  }
  const auto partial = [&](int n) { return (token * args.heads + first_head + n) * args.split.pieces + piece; };
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
#pragma unroll
    for (int j = 0; j < kColumnsEach; ++j) {
      const std::int64_t column = chunk * kColumns + j * kThreads + thread;
      if (n < heads && column < args.value_width) partials.sums[partial(n) * args.value_width + column] = sums[n][j];
    }
  }
  if (s == 0 && h < heads && chunk == 0) {
    partials.maxima[partial(h)] = largest;
    partials.weights[partial(h)] = sum;
  }
}

Split generic_split(std::int64_t attended) { return split_keys(attended, 256, 32); }

// Tokens in groups, so that the pieces fit in the workspace.
void run_attend(Attend args, std::int64_t tokens, float* y, Lane& lane) {
  args.tile_keys = tile_keys_for(args.width);
  const std::int64_t shared = shared_bytes(args.width, args.tile_keys);
  allow_shared(attend_kernel, shared);
  const std::int64_t at_once = tokens_at_once(tokens, partial_bytes(args.heads, args.value_width, args.split));
  const Partials partials = partials_in(lane.workspace, at_once, args.heads, args.value_width, args.split);
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    const dim3 grid(static_cast<unsigned>(args.split.pieces) * blocks_for(args.value_width, kColumns),
                    static_cast<unsigned>(args.kv_heads) * blocks_for(group, kHeads), static_cast<unsigned>(some));
    launch(attend_kernel, grid, kThreads, shared, stream_of(lane), args, partials);
    combine_pieces(partials, args.split, args.counts, args.keys.positions, y, some, args.heads, args.value_width, stream_of(lane));
    args.q += some * args.heads * args.width;
    y += some * args.heads * args.value_width;
    for (DeviceCache* cache : {&args.keys, &args.values}) {
      cache->table += some * cache->table_width;
      cache->positions += some;
    }
    if (args.counts == nullptr) continue;
    args.counts += some;
    args.selected += some * args.top_k;
  }
}

std::int64_t attended_keys(const AttendLatentArgs& args) {
  return args.selection.counts.shape.rank() != 0 ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
}

std::int64_t workspace_for(std::int64_t tokens, std::int64_t heads, std::int64_t width, std::int64_t attended) {
  const std::int64_t token_bytes = partial_bytes(heads, width, generic_split(attended));
  return tokens_at_once(tokens, token_bytes) * token_bytes;
}

std::int64_t latent_workspace(const AttendLatentArgs& args, int) {
  return workspace_for(args.q.dim(0), args.q.dim(1), args.y.dim(2), attended_keys(args));
}

void run_attend_latent(const AttendLatentArgs& args, Lane& lane) {
  const DeviceCache cache = device_cache(args.cache, args.places);
  Attend attend{.q = args.q.f32(),
                .keys = cache,
                .values = cache,
                .counts = nullptr,
                .selected = nullptr,
                .top_k = 0,
                .scale = args.scale,
                .heads = args.q.dim(1),
                .kv_heads = 1,
                .width = args.q.dim(2),
                .value_width = args.y.dim(2),
                .split = generic_split(attended_keys(args)),
                .tile_keys = 0};
  if (args.selection.counts.shape.rank() != 0) {
    attend.counts = args.selection.counts.i32();
    attend.selected = args.selection.positions.i32();
    attend.top_k = args.selection.top_k();
  }
  run_attend(attend, args.q.dim(0), args.y.f32(), lane);
}

std::int64_t grouped_workspace(const AttendGroupedArgs& args, int) {
  return workspace_for(args.q.dim(0), args.q.dim(1), args.y.dim(2), args.max_context);
}

void run_attend_grouped(const AttendGroupedArgs& args, Lane& lane) {
  const Attend attend{.q = args.q.f32(),
                      .keys = device_cache(args.keys, args.places),
                      .values = device_cache(args.values, args.places),
                      .counts = nullptr,
                      .selected = nullptr,
                      .top_k = 0,
                      .scale = args.scale,
                      .heads = args.q.dim(1),
                      .kv_heads = args.kv_heads,
                      .width = args.q.dim(2),
                      .value_width = args.y.dim(2),
                      .split = generic_split(args.max_context),
                      .tile_keys = 0};
  run_attend(attend, args.q.dim(0), args.y.f32(), lane);
}

}  // namespace

Kernel<AttendLatentArgs> attend_latent_generic() {
  return {"attend_latent.cuda", supports_any<kPortableSharedBytes>, latent_workspace, run_attend_latent};
}
Kernel<AttendGroupedArgs> attend_grouped_generic() {
  return {"attend_grouped.cuda", supports_any<kPortableSharedBytes>, grouped_workspace, run_attend_grouped};
}

}  // namespace reckoner::cuda
