// route: the reference's arithmetic for each token, without its sorting of all experts and without allocating, spread over the threads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/rows/rows.h"

namespace reckoner {
namespace {

// Workspace: for each thread p [experts], choice [experts], group scores [groups]; then next [experts] i32.
std::int64_t thread_floats(const RouteArgs& args) { return 2 * args.logits.dim(1) + args.groups; }

std::int64_t workspace_bytes(const RouteArgs& args, int threads) { return 4 * (threads * thread_floats(args) + args.logits.dim(1)); }

// Indices of the `wanted` largest of values[count], in ascending order of index; of equals the lower index. `wanted` <= count, no NaN.
void choose_largest(const float* values, std::int64_t count, std::int64_t wanted, std::int32_t* chosen) {
  // chosen[0, kept) is kept sorted, best first; a later value must be larger to pass an earlier one.
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (kept == wanted && !(values[i] > values[chosen[kept - 1]])) continue;
    std::int64_t place = kept < wanted ? kept++ : kept - 1;
    for (; place > 0 && values[i] > values[chosen[place - 1]]; --place) chosen[place] = chosen[place - 1];
    chosen[place] = static_cast<std::int32_t>(i);
  }
  std::sort(chosen, chosen + kept);
}

// Sum of the two largest of values[count].
float best_two(const float* values, std::int64_t count) {
  if (count == 1) return values[0] + 0.0f;
  float first = std::max(values[0], values[1]);
  float second = std::min(values[0], values[1]);
  for (std::int64_t i = 2; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return first + second;
}

// Takes the experts of all but the best groups out of the running. score is scratch, [groups].
void keep_best_groups(const RouteArgs& args, float* choice, float* score) {
  const std::int64_t size = args.logits.dim(1) / args.groups;
  for (std::int64_t group = 0; group < args.groups; ++group) score[group] = best_two(choice + group * size, size);
  for (std::int64_t group = 0; group < args.groups; ++group) {
    // Groups that stand before this one: those with a higher score, and equal ones with a lower number.
    std::int64_t better = 0;
    for (std::int64_t other = 0; other < args.groups; ++other) {
      better += score[other] > score[group] || (score[other] == score[group] && other < group) ? 1 : 0;
    }
    if (better >= args.top_groups) std::fill_n(choice + group * size, size, -INFINITY);
  }
}

// Weights of a token, and for now the experts themselves in slot_of.
void route_token(const RouteArgs& args, std::int64_t token, float* scratch) {
  const std::int64_t experts = args.logits.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  const float* logits = args.logits.f32() + token * experts;
  float* p = scratch;
  float* choice = p + experts;
  for (std::int64_t e = 0; e < experts; ++e) {
    p[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    choice[e] = p[e] + args.bias.f32()[e];
    // A row that is not finite still chooses experts that exist.
    if (std::isnan(choice[e])) choice[e] = -INFINITY;
  }
  if (args.groups > 1) keep_best_groups(args, choice, choice + experts);
  std::int32_t* chosen = args.slot_of.i32() + token * top_k;
  choose_largest(choice, experts, top_k, chosen);
  float sum = 1e-20f;
  for (std::int64_t k = 0; k < top_k; ++k) sum += p[chosen[k]];
  const float factor = args.normalise == RouteArgs::Weights::normalised ? args.scale / sum : args.scale;
  for (std::int64_t k = 0; k < top_k; ++k) args.weights.f32()[token * top_k + k] = p[chosen[k]] * factor;
}

// Sorts the (token, expert) pairs by expert, within an expert by token; slot_of holds the experts and gets the slots.
void fill_slots(const RouteArgs& args, std::int32_t* next) {
  const std::int64_t experts = args.logits.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  const std::int64_t pairs = args.slot_of.shape.elements();
  std::int32_t* slot_of = args.slot_of.i32();
  std::int32_t* begin = args.slots.begin.i32();
  std::fill_n(begin, experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i) ++begin[slot_of[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  std::copy_n(begin, experts, next);
  for (std::int64_t i = 0; i < pairs; ++i) {
    slot_of[i] = next[slot_of[i]]++;
    args.slots.tokens.i32()[slot_of[i]] = static_cast<std::int32_t>(i / top_k);
  }
}

void run(const RouteArgs& args, Lane& lane) {
  constexpr std::int64_t kGrain = 4;  // tokens of an item
  const std::int64_t tokens = args.logits.dim(0);
  auto* scratch = reinterpret_cast<float*>(lane.workspace);
  lane.pool.parallel_for((tokens + kGrain - 1) / kGrain, [&](std::int64_t item, int thread) {
    for (std::int64_t token = item * kGrain; token < std::min(tokens, (item + 1) * kGrain); ++token) {
      route_token(args, token, scratch + thread * thread_floats(args));
    }
  });
  fill_slots(args, reinterpret_cast<std::int32_t*>(scratch + lane.pool.threads() * thread_floats(args)));
}

}  // namespace

std::vector<Kernel<RouteArgs>> route_kernels() {
  return {{.name = "route.portable",
           .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
           .workspace_bytes = workspace_bytes,
           .run = run}};
}

}  // namespace reckoner
