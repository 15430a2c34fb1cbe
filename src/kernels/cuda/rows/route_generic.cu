// route for any number of tokens, experts and groups: a warp chooses for each token, then a block an expert fills its slots.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/numbers.cuh"
#include "kernels/cuda/rows/route.h"
#include "kernels/cuda/rows/rows.h"

namespace reckoner::cuda {
namespace {

struct Routing {
  const float* logits;  // [tokens, experts]
  const float* bias;
  float* weights;        // [tokens, top_k]
  std::int32_t* chosen;  // [tokens, top_k], ascending
  int experts, top_k, groups, top_groups;
  bool normalise;
  float scale;
};

// The largest of all lanes' candidates, of equal ones the lowest index.
__device__ void warp_best(float& value, int& index) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, step);
    const int other_index = __shfl_xor_sync(kAllLanes, index, step);
    if (other > value || (other == value && other_index < index)) value = other, index = other_index;
  }
}

// Index of the largest of values[0, count) that is not taken; ties to the lower.
__device__ int best_of(const float* values, const bool* taken, int count) {
  float value = -INFINITY;
  int index = count;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    if (!taken[i] && (values[i] > value || index == count)) value = values[i], index = i;
  }
  warp_best(value, index);
  return index;
}

// Takes the experts of all but the best groups out of the running: minus infinity.
__device__ void keep_best_groups(const Routing& args, float* choice, float* score, bool* taken) {
  const int size = args.experts / args.groups, lane = static_cast<int>(threadIdx.x);
  for (int group = lane; group < args.groups; group += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      const float value = choice[i];
      if (value > best) {
        second = best, best = value;
      } else if (value > second) {
        second = value;
      }
    }
    score[group] = size > 1 ? best + second : best;
    taken[group] = false;
  }
  __syncwarp();
  for (int i = 0; i < args.top_groups; ++i) {
    const int group = best_of(score, taken, args.groups);
    __syncwarp();
    if (lane == 0) taken[group] = true;
    __syncwarp();
  }
  for (int i = lane; i < args.experts; i += 32) {
    if (!taken[i / size]) choice[i] = -INFINITY;
  }
  __syncwarp();
  for (int group = lane; group < args.groups; group += 32) taken[group] = false;
  __syncwarp();
}

__global__ void choose_experts_kernel(Routing args) {
  begin_kernel();
  float* const memory = dynamic_shared<float>();  // p [experts], choice [experts], score [experts], taken [experts]
  float* p = memory;
  float* choice = p + args.experts;
  float* score = choice + args.experts;
  bool* taken = reinterpret_cast<bool*>(score + args.experts);
  const std::int64_t token = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < args.experts; e += 32) {
    // Through double, so that exp is rounded as the reference's; then in float as there.
    const float exponential = static_cast<float>(exp(-static_cast<double>(args.logits[token * args.experts + e])));
    p[e] = 1.0f / (1.0f + exponential);
    const float value = p[e] + args.bias[e];
    choice[e] = isnan(value) ? -INFINITY : value;
    taken[e] = false;
  }
  __syncwarp();
  if (args.groups > 1) keep_best_groups(args, choice, score, taken);
  for (int k = 0; k < args.top_k; ++k) {
    const int expert = best_of(choice, taken, args.experts);
    __syncwarp();
    if (lane == 0) taken[expert] = true;
    __syncwarp();
  }
  if (lane != 0) return;
  float sum = 1e-20f;
  for (int e = 0, k = 0; e < args.experts; ++e) {
    if (!taken[e]) continue;
    args.chosen[token * args.top_k + k++] = e;
    sum += p[e];
  }
  const float factor = args.normalise ? args.scale / sum : args.scale;
  for (int k = 0; k < args.top_k; ++k) args.weights[token * args.top_k + k] = p[args.chosen[token * args.top_k + k]] * factor;
}

constexpr int kThreads = 256;

// Block e counts the choices of experts before e (where its slots begin), then numbers its own in the order of tokens.
__global__ void fill_slots_kernel(const std::int32_t* chosen, std::int64_t count, int top_k, int experts, std::int32_t* begin,
                                  std::int32_t* slot_of, std::int32_t* tokens) {
  begin_kernel();
  __shared__ int before_of_warp[kThreads / 32], own_of_warp[kThreads / 32];
  const int expert = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int before = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) before += chosen[i] < expert;
  before = __reduce_add_sync(kAllLanes, before);
  if (lane == 0) before_of_warp[warp] = before;
  __syncthreads();
  int slot = 0;
  for (int w = 0; w < kThreads / 32; ++w) slot += before_of_warp[w];
  if (threadIdx.x == 0) begin[expert] = slot;
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    const bool own = i < count && chosen[i] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, own);
    if (lane == 0) own_of_warp[warp] = __popc(votes);
    __syncthreads();
    int rank = slot + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) rank += own_of_warp[w];
      slot += own_of_warp[w];
    }
    if (own) {
      slot_of[i] = rank;
      tokens[rank] = static_cast<std::int32_t>(i / top_k);
    }
    __syncthreads();
  }
  if (expert == experts - 1 && threadIdx.x == 0) begin[experts] = static_cast<std::int32_t>(count);
}

std::int64_t route_workspace(const RouteArgs& args, int) { return args.weights.shape.elements() * 4; }

void run_route(const RouteArgs& args, Lane& lane) {
  const std::int64_t tokens = args.logits.dim(0), experts = args.logits.dim(1), top_k = args.weights.dim(1);
  auto* chosen = reinterpret_cast<std::int32_t*>(lane.workspace);
  const Routing routing{.logits = args.logits.f32(),
                        .bias = args.bias.f32(),
                        .weights = args.weights.f32(),
                        .chosen = chosen,
                        .experts = static_cast<int>(experts),
                        .top_k = static_cast<int>(top_k),
                        .groups = static_cast<int>(args.groups),
                        .top_groups = static_cast<int>(args.top_groups),
                        .normalise = args.normalise == RouteArgs::Weights::normalised,
                        .scale = args.scale};
  launch(choose_experts_kernel, static_cast<unsigned>(tokens), 32, static_cast<std::size_t>(experts) * 13, stream_of(lane), routing);
  fill_slots(args, chosen, stream_of(lane));
}

}  // namespace

void fill_slots(const RouteArgs& args, const std::int32_t* chosen, cudaStream_t stream) {
  const std::int64_t experts = args.logits.dim(1), top_k = args.weights.dim(1);
  launch(fill_slots_kernel, static_cast<unsigned>(experts), kThreads, 0, stream, chosen, args.weights.shape.elements(),
         static_cast<int>(top_k), static_cast<int>(experts), args.slots.begin.i32(), args.slot_of.i32(), args.slots.tokens.i32());
}

Kernel<RouteArgs> route_generic() { return {"route.cuda", supports_any<kPlainSharedBytes>, route_workspace, run_route}; }

std::vector<Kernel<RouteArgs>> route_kernels() { return {route_warps(), route_generic()}; }

}  // namespace reckoner::cuda
