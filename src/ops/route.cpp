#include "ops/route.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace reckoner {

Status check(const RouteArgs& args) {
  constexpr std::string_view op = RouteArgs::kName;
  TRY(expect_that(args.logits.shape.rank() == 2 && args.weights.shape.rank() == 2, op,
                  "logits must be [tokens, experts], weights [tokens, top_k]"));
  const std::int64_t tokens = args.logits.dim(0);
  const std::int64_t experts = args.logits.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  TRY(expect_tensor(op, "logits", args.logits, DType::f32, {tokens, experts}));
  TRY(expect_tensor(op, "bias", args.bias, DType::f32, {experts}));
  TRY(expect_tensor(op, "weights", args.weights, DType::f32, {tokens, top_k}));
  TRY(expect_tensor(op, "slot_of", args.slot_of, DType::i32, {tokens, top_k}));
  TRY(expect_tensor(op, "slots.begin", args.slots.begin, DType::i32, {experts + 1}));
  TRY(expect_tensor(op, "slots.tokens", args.slots.tokens, DType::i32, {tokens * top_k}));
  return expect_that(
      args.groups >= 1 && experts % args.groups == 0 && args.top_groups <= args.groups && top_k <= experts / args.groups * args.top_groups,
      op, "groups must divide the experts, and the kept groups must hold top_k of them");
}

Cost cost(const RouteArgs& args) { return {.bytes = static_cast<double>(args.logits.bytes()), .multiply_adds = 0}; }

namespace {

// Takes the experts of all but the best groups out of the running.
void keep_best_groups(const RouteArgs& args, std::vector<float>& choice) {
  const auto size = choice.size() / static_cast<std::size_t>(args.groups);
  std::vector<float> score;
  for (std::size_t group = 0; group < static_cast<std::size_t>(args.groups); ++group) {
    std::vector<float> members(choice.begin() + static_cast<std::ptrdiff_t>(group * size),
                               choice.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::sort(members.begin(), members.end(), std::greater<>());
    score.push_back(members[0] + (size > 1 ? members[1] : 0.0f));
  }
  std::vector<std::size_t> order(score.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
  for (auto group = order.begin() + args.top_groups; group != order.end(); ++group) {
    std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(*group * size), size, -INFINITY);
  }
}

// The chosen experts of a row in ascending order; rows that are not finite choose the first ones, so that nothing is read out of range.
std::vector<std::int32_t> choose(const RouteArgs& args, const float* p) {
  std::vector<float> choice(static_cast<std::size_t>(args.logits.dim(1)));
  for (std::size_t e = 0; e < choice.size(); ++e) {
    choice[e] = p[e] + args.bias.f32()[e];
    if (std::isnan(choice[e])) choice[e] = -INFINITY;
  }
  if (args.groups > 1) keep_best_groups(args, choice);
  std::vector<std::int32_t> order(choice.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return choice[static_cast<std::size_t>(a)] > choice[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(args.weights.dim(1)));
  std::sort(order.begin(), order.end());
  return order;
}

// Sorts the (token, expert) pairs by expert, within an expert by token. `chosen` is [tokens, top_k].
void fill_slots(const RouteArgs& args, const std::vector<std::int32_t>& chosen) {
  const std::int64_t experts = args.logits.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  std::int32_t* begin = args.slots.begin.i32();
  std::fill_n(begin, experts + 1, 0);
  for (const std::int32_t expert : chosen) ++begin[expert + 1];
  std::partial_sum(begin, begin + experts + 1, begin);
  std::vector<std::int32_t> next(begin, begin + experts);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int32_t slot = next[static_cast<std::size_t>(chosen[i])]++;
    args.slot_of.i32()[i] = slot;
    args.slots.tokens.i32()[slot] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / top_k);
  }
}

}  // namespace

void reference(const RouteArgs& args) {
  const std::int64_t experts = args.logits.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  std::vector<float> p(static_cast<std::size_t>(experts));
  std::vector<std::int32_t> chosen;
  for (std::int64_t token = 0; token < args.logits.dim(0); ++token) {
    for (std::int64_t e = 0; e < experts; ++e)
      p[static_cast<std::size_t>(e)] = 1.0f / (1.0f + std::exp(-args.logits.f32()[token * experts + e]));
    const std::vector<std::int32_t> row = choose(args, p.data());
    float sum = 1e-20f;
    for (const std::int32_t expert : row) sum += p[static_cast<std::size_t>(expert)];
    const float factor = args.normalise == RouteArgs::Weights::normalised ? args.scale / sum : args.scale;
    for (std::int64_t k = 0; k < top_k; ++k)
      args.weights.f32()[token * top_k + k] = p[static_cast<std::size_t>(row[static_cast<std::size_t>(k)])] * factor;
    chosen.insert(chosen.end(), row.begin(), row.end());
  }
  fill_slots(args, chosen);
}

Status check(const CombineArgs& args) {
  constexpr std::string_view op = CombineArgs::kName;
  TRY(expect_that(args.rows.shape.rank() == 2 && args.weights.shape.rank() == 2, op,
                  "rows must be [slots, width], weights [tokens, top_k]"));
  const std::int64_t tokens = args.weights.dim(0);
  TRY(expect_tensor(op, "rows", args.rows, DType::f32, {tokens * args.weights.dim(1), args.rows.dim(1)}));
  TRY(expect_tensor(op, "weights", args.weights, DType::f32, args.weights.shape));
  TRY(expect_tensor(op, "slot_of", args.slot_of, DType::i32, args.weights.shape));
  if (args.shared.shape.rank() != 0) TRY(expect_tensor(op, "shared", args.shared, DType::f32, {tokens, args.rows.dim(1)}));
  return expect_tensor(op, "y", args.y, DType::f32, {tokens, args.rows.dim(1)});
}

Cost cost(const CombineArgs& args) {
  return {.bytes = static_cast<double>(args.rows.bytes() + 2 * args.y.bytes()),
          .multiply_adds = static_cast<double>(args.rows.shape.elements())};
}

void reference(const CombineArgs& args) {
  const std::int64_t width = args.rows.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  for (std::int64_t token = 0; token < args.weights.dim(0); ++token) {
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = args.shared.empty() ? 0.0f : args.shared.f32()[token * width + i];
      for (std::int64_t k = 0; k < top_k; ++k) {
        sum += args.weights.f32()[token * top_k + k] * args.rows.f32()[args.slot_of.i32()[token * top_k + k] * width + i];
      }
      args.y.f32()[token * width + i] = sum;
    }
  }
}

}  // namespace reckoner
