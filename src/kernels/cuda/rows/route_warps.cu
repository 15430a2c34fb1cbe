// route without groups for up to 512 experts: a warp chooses for a token, its experts in registers. A few tokens are one block, which then
// numbers the slots too; for many, a block an expert does that.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/numbers.cuh"
#include "kernels/cuda/rows/route.h"

namespace reckoner::cuda {
namespace {

constexpr int kMostExperts = 512;
constexpr int kMostTopK = 32;
constexpr int kFewTokens = 16, kFewChoices = 512;  // of one block
constexpr int kWarps = 8;                          // a block, of many

struct Routing {
  const float* logits;  // [tokens, experts]
  const float* bias;
  float* weights;        // [tokens, top_k]
  std::int32_t* chosen;  // [tokens, top_k], ascending; null: one block, which keeps them
  std::int64_t tokens;
  int experts, top_k;
  bool normalise;
  float scale;
};

// A number that orders as choices do and is never 0: NaN is minus infinity, both zeros are one.
__device__ std::uint32_t order_of(float choice) {
  if (isnan(choice)) choice = -INFINITY;
  const std::uint32_t bits = __float_as_uint(choice + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Chosen {
  std::int32_t expert[kMostTopK];  // ascending
  float p[kMostTopK];
};

// A lane has the experts [lane * kOwn, lane * kOwn + kOwn).
template <int kOwn>
__device__ void choose(const Routing& args, std::int64_t token, Chosen& chosen) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = lane * kOwn;
  float p[kOwn], bias[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const bool there = first + i < args.experts;
    p[i] = there ? args.logits[token * args.experts + first + i] : 0.0f;
    bias[i] = there ? args.bias[first + i] : 0.0f;
  }
  std::uint32_t order[kOwn];  // 0: taken, or not there
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    // Through double, so that exp is rounded as the reference's; then in float as there.
    p[i] = 1.0f / (1.0f + static_cast<float>(exp(-static_cast<double>(p[i]))));
    order[i] = first + i < args.experts ? order_of(p[i] + bias[i]) : 0;
  }
  std::uint32_t taken = 0;
  for (int k = 0; k < args.top_k; ++k) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) largest = max(largest, order[i]);
    const std::uint32_t best = __reduce_max_sync(kAllLanes, largest);
    // The lowest lane that has it, and its first.
    if (lane != __ffs(static_cast<int>(__ballot_sync(kAllLanes, largest == best))) - 1) continue;
    bool found = false;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (found || order[i] != best) continue;
      order[i] = 0;
      taken |= 1u << i;
      found = true;
    }
  }
  int before = __popc(taken);
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, before, step);
    if (lane >= step) before += other;
  }
  before -= __popc(taken);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if ((taken >> i & 1u) == 0) continue;
    chosen.expert[before] = first + i;
    chosen.p[before++] = p[i];
  }
  __syncwarp();
  float sum = 1e-20f;
  for (int k = 0; k < args.top_k; ++k) sum += chosen.p[k];
  const float factor = args.normalise ? args.scale / sum : args.scale;
  for (int k = lane; k < args.top_k; k += 32) {
    args.weights[token * args.top_k + k] = chosen.p[k] * factor;
    if (args.chosen != nullptr) args.chosen[token * args.top_k + k] = chosen.expert[k];
  }
}

struct Slots {
  std::int32_t* begin;    // [experts + 1]
  std::int32_t* slot_of;  // [tokens, top_k]
  std::int32_t* tokens;   // [tokens * top_k]
};

// A warp a token; then each thread finds where its expert's slots begin and where its choices go.
template <int kOwn>
__global__ void __launch_bounds__(kFewTokens * 32) route_few_kernel(Routing args, Slots slots) {
  begin_kernel();
  __shared__ Chosen chosen[kFewTokens];
  __shared__ std::int32_t all[kFewChoices];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, threads = static_cast<int>(blockDim.x);
  const int choices = static_cast<int>(args.tokens) * args.top_k;
  if (warp < args.tokens) {
    choose<kOwn>(args, warp, chosen[warp]);
    for (int k = thread % 32; k < args.top_k; k += 32) all[warp * args.top_k + k] = chosen[warp].expert[k];
  }
  __syncthreads();
  for (int i = thread; i < choices; i += threads) {
    const std::int32_t expert = all[i];
    int slot = 0;
    for (int j = 0; j < choices; ++j) slot += all[j] < expert || (all[j] == expert && j < i);
    slots.slot_of[i] = slot;
    slots.tokens[slot] = i / args.top_k;
  }
  for (int expert = thread; expert <= args.experts; expert += threads) {
    int begin = 0;
    for (int j = 0; j < choices; ++j) begin += all[j] < expert;
    slots.begin[expert] = begin;
  }
}

template <int kOwn>
__global__ void __launch_bounds__(kWarps * 32) choose_kernel(Routing args) {
  begin_kernel();
  __shared__ Chosen chosen[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + warp;
  if (token < args.tokens) choose<kOwn>(args, token, chosen[warp]);
}

bool fits_warps(const RouteArgs& args) {
  return args.groups == 1 && args.logits.dim(1) <= kMostExperts && args.weights.dim(1) <= kMostTopK;
}
bool is_few(const RouteArgs& args) { return args.logits.dim(0) <= kFewTokens && args.weights.shape.elements() <= kFewChoices; }

std::int64_t workspace(const RouteArgs& args, int threads) {
  return fits_warps(args) && is_few(args) ? 0 : route_generic().workspace_bytes(args, threads);
}

template <int kOwn>
void launch_routing(const RouteArgs& args, Lane& lane) {
  const std::int64_t tokens = args.logits.dim(0);
  Routing routing{.logits = args.logits.f32(),
                  .bias = args.bias.f32(),
                  .weights = args.weights.f32(),
                  .chosen = nullptr,
                  .tokens = tokens,
                  .experts = static_cast<int>(args.logits.dim(1)),
                  .top_k = static_cast<int>(args.weights.dim(1)),
                  .normalise = args.normalise == RouteArgs::Weights::normalised,
                  .scale = args.scale};
  if (is_few(args)) {
    const unsigned threads = std::max(256u, static_cast<unsigned>(tokens) * 32);
    const Slots slots{.begin = args.slots.begin.i32(), .slot_of = args.slot_of.i32(), .tokens = args.slots.tokens.i32()};
    launch(route_few_kernel<kOwn>, 1, threads, 0, stream_of(lane), routing, slots);
    return;
  }
  routing.chosen = reinterpret_cast<std::int32_t*>(lane.workspace);
  launch(choose_kernel<kOwn>, blocks_for(tokens, kWarps), kWarps * 32, 0, stream_of(lane), routing);
  fill_slots(args, routing.chosen, stream_of(lane));
}

void run(const RouteArgs& args, Lane& lane) {
  if (!fits_warps(args)) return route_generic().run(args, lane);
  if (args.logits.dim(1) <= 256) return launch_routing<8>(args, lane);
  launch_routing<16>(args, lane);
}

}  // namespace

Kernel<RouteArgs> route_warps() { return {"route.warps.cuda", supports_any<kPlainSharedBytes>, workspace, run}; }

}  // namespace reckoner::cuda
