// route without groups for up to 512 experts: a warp chooses for a token, its experts in registers. A few tokens are one block, all of
// whose threads take part in what comes before, and which then numbers the slots too; for many, a block an expert does that.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/numbers.cuh"
#include "kernels/cuda/rows/route.h"

namespace reckoner::cuda {
namespace {

constexpr int kMostExperts = 512;
constexpr int kMostTopK = 32;
constexpr int kFewTokens = 16, kFewChoices = 512, kFewLogits = 4096;  // of one block
constexpr int kFewThreads = 1024;
constexpr int kWarps = 8;  // a block, of many

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
  alignas(16) float p[kMostTopK];
};

// Through double, so that exp is rounded as the reference's; then in float as there.
__device__ float sigmoid(float logit) { return 1.0f / (1.0f + static_cast<float>(exp(-static_cast<double>(logit)))); }

// The orders of a lane that are among the warp's best `top_k`, as bits: equal ones in turn, from the lowest lane on.
template <int kOwn>
__device__ std::uint32_t take_in_turn(int top_k, std::uint32_t (&order)[kOwn]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t taken = 0;
  for (int k = 0; k < top_k; ++k) {
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
  return taken;
}

// The same, faster where they differ, which is nearly always: all that are equal go at once, and then they are counted.
template <int kOwn>
__device__ std::uint32_t take_best(int top_k, std::uint32_t (&order)[kOwn]) {
  std::uint32_t rest[kOwn], best = 0, taken = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) rest[i] = order[i];
#pragma unroll 1
  for (int k = 0; k < top_k; ++k) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) largest = max(largest, rest[i]);
    best = __reduce_max_sync(kAllLanes, largest);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) rest[i] = rest[i] == best ? 0 : rest[i];
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) taken |= order[i] >= best ? 1u << i : 0;
  if (best != 0 && static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(taken)))) == top_k) return taken;
  return take_in_turn(top_k, order);
}

// A lane has the experts [lane * kOwn, lane * kOwn + kOwn); `order` is 0 where there is none. Gives which of them are chosen, as bits, and
// in `before` how many of lower lanes are.
template <int kOwn>
__device__ std::uint32_t choose(const Routing& args, std::int64_t token, const float (&p)[kOwn], std::uint32_t (&order)[kOwn],
                                Chosen& chosen, int& before) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = lane * kOwn;
  const std::uint32_t taken = take_best(args.top_k, order);
  before = 0;
#pragma unroll
  for (int bit = 0; 1 << bit <= kOwn; ++bit)
    before += __popc(__ballot_sync(kAllLanes, (__popc(taken) >> bit & 1) != 0) & ((1u << lane) - 1u)) << bit;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int place = before + __popc(taken & ((1u << i) - 1u));
    if ((taken >> i & 1u) != 0) chosen.expert[place] = first + i, chosen.p[place] = p[i];
  }
  __syncwarp();
  float sum = 1e-20f;
  for (int k = 0; k < args.top_k; k += 4) {
    const float4 four = *reinterpret_cast<const float4*>(&chosen.p[k]);
    sum += four.x;
    if (k + 1 < args.top_k) sum += four.y;
    if (k + 2 < args.top_k) sum += four.z;
    if (k + 3 < args.top_k) sum += four.w;
  }
  const float factor = args.normalise ? args.scale / sum : args.scale;
  for (int k = lane; k < args.top_k; k += 32) {
    args.weights[token * args.top_k + k] = chosen.p[k] * factor;
    if (args.chosen != nullptr) args.chosen[token * args.top_k + k] = chosen.expert[k];
  }
  return taken;
}

struct Slots {
  std::int32_t* begin;    // [experts + 1]
  std::int32_t* slot_of;  // [tokens, top_k]
  std::int32_t* tokens;   // [tokens * top_k]
};

// Of one token each choice is a slot, in order.
template <int kOwn>
__device__ void number_choices(const Routing& args, std::uint32_t taken, int before, const Slots& slots) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = lane * kOwn;
  if (lane < args.top_k) slots.slot_of[lane] = lane, slots.tokens[lane] = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (first + i < args.experts) slots.begin[first + i] = before + __popc(taken & ((1u << i) - 1u));
  }
  if (lane == 0) slots.begin[args.experts] = args.top_k;
}

// All threads make the orders of all experts, a warp chooses for a token, and then each thread finds where its expert's slots begin and
// where its choices go.
template <int kOwn>
__global__ void __launch_bounds__(kFewThreads) route_few_kernel(Routing args, Slots slots) {
  begin_kernel();
  __shared__ Chosen chosen[kFewTokens];
  __shared__ float values[kFewLogits];
  __shared__ std::uint32_t orders[kFewLogits];
  __shared__ int4 all[kFewChoices / 4];
  auto* const one = reinterpret_cast<int*>(all);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, threads = static_cast<int>(blockDim.x);
  const int tokens = static_cast<int>(args.tokens), choices = tokens * args.top_k, quads = (choices + 3) / 4;
  for (int i = thread; i < tokens * args.experts; i += threads) {
    const float bias = args.bias[i < args.experts ? i : i % args.experts], p = sigmoid(args.logits[i]);
    values[i] = p;
    orders[i] = order_of(p + bias);
  }
  if (thread < 4) one[max(quads * 4 - 4, 0) + thread] = 1 << 30;  // behind the last choice
  __syncthreads();
  if (warp < tokens) {
    const int first = lane * kOwn;
    float p[kOwn];
    std::uint32_t order[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool there = first + i < args.experts;
      p[i] = there ? values[warp * args.experts + first + i] : 0.0f;
      order[i] = there ? orders[warp * args.experts + first + i] : 0;
    }
    int before;
    const std::uint32_t taken = choose<kOwn>(args, warp, p, order, chosen[warp], before);
    if (tokens == 1) return number_choices<kOwn>(args, taken, before, slots);
    for (int k = lane; k < args.top_k; k += 32) one[warp * args.top_k + k] = chosen[warp].expert[k];
  }
  if (tokens == 1) return;
  __syncthreads();
  for (int i = thread; i < choices; i += threads) {
    const int expert = one[i];
    int slot = 0;
    for (int j = 0; j < quads; ++j) {
      const int4 four = all[j];
      const int other[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) slot += other[k] < expert || (other[k] == expert && 4 * j + k < i);
    }
    slots.slot_of[i] = slot;
    slots.tokens[slot] = i / args.top_k;
  }
  for (int expert = thread; expert < args.experts; expert += threads) {
    int begin = 0;
    for (int j = 0; j < quads; ++j) begin += (all[j].x < expert) + (all[j].y < expert) + (all[j].z < expert) + (all[j].w < expert);
    slots.begin[expert] = begin;
  }
  if (thread == 0) slots.begin[args.experts] = choices;
}

template <int kOwn>
__global__ void __launch_bounds__(kWarps * 32) choose_kernel(Routing args) {
  begin_kernel();
  __shared__ Chosen chosen[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, first = static_cast<int>(threadIdx.x) % 32 * kOwn;
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + warp;
  if (token >= args.tokens) return;
  float p[kOwn];
  std::uint32_t order[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) p[i] = first + i < args.experts ? args.logits[token * args.experts + first + i] : 0.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    p[i] = sigmoid(p[i]);
    order[i] = first + i < args.experts ? order_of(p[i] + args.bias[first + i]) : 0;
  }
  int before;
  choose<kOwn>(args, token, p, order, chosen[warp], before);
}

bool fits_warps(const RouteArgs& args) {
  return args.groups == 1 && args.logits.dim(1) <= kMostExperts && args.weights.dim(1) <= kMostTopK;
}
bool is_few(const RouteArgs& args) {
  return args.logits.dim(0) <= kFewTokens && args.weights.shape.elements() <= kFewChoices && args.logits.shape.elements() <= kFewLogits;
}

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
    const auto threads = static_cast<unsigned>(
        std::clamp<std::int64_t>(round_up(args.logits.shape.elements(), 32), std::max<std::int64_t>(256, tokens * 32), kFewThreads));
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
