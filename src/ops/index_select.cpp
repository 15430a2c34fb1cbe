#include "ops/index_select.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace reckoner {

Status check(const IndexSelectArgs& args) {
  constexpr std::string_view op = IndexSelectArgs::kName;
  TRY(expect_that(args.q.shape.rank() == 3, op, "argument q must be [tokens, index_heads, index_dim]"));
  const std::int64_t tokens = args.q.dim(0);
  TRY(expect_tensor(op, "q", args.q, DType::f32, args.q.shape));
  TRY(expect_tensor(op, "weights", args.weights, DType::f32, {tokens, args.q.dim(1)}));
  TRY(expect_tensor(op, "places.positions", args.places.positions, DType::i32, {tokens}));
  TRY(expect_cache(op, args.keys, args.q.dim(2), "a cache row must hold index_dim elements"));
  TRY(expect_tensor(op, "selection.counts", args.selection.counts, DType::i32, {tokens}));
  return expect_tensor(op, "selection.positions", args.selection.positions, DType::i32, {tokens, args.selection.positions.dim(1)});
}

Cost cost(const IndexSelectArgs& args) {
  const auto context = static_cast<double>(args.max_context);
  return {.bytes =
              context * static_cast<double>(args.keys.row_bytes()) + static_cast<double>(args.q.bytes() + args.selection.positions.bytes()),
          .multiply_adds = context * static_cast<double>(args.q.shape.elements())};
}

void select_top_k(const float* scores, std::int64_t count, std::int64_t top_k, std::int32_t* indices) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](std::int32_t i) { return std::isnan(scores[i]) ? -INFINITY : scores[i]; };
  const auto better = [&](std::int32_t a, std::int32_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); };
  const auto kept = order.begin() + std::min(top_k, count);
  if (kept != order.end()) std::nth_element(order.begin(), kept, order.end(), better);
  std::sort(order.begin(), kept);
  std::copy(order.begin(), kept, indices);
}

void reference(const IndexSelectArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t dim = args.q.dim(2);
  const std::int64_t top_k = args.selection.top_k();
  std::vector<float> key(static_cast<std::size_t>(dim));
  std::vector<float> scores;
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const std::int64_t context = args.places.positions.i32()[token] + 1;
    args.selection.counts.i32()[token] = static_cast<std::int32_t>(std::min(context, top_k));
    scores.assign(static_cast<std::size_t>(context), 0.0f);
    for (std::int64_t position = 0; context > top_k && position < context; ++position) {
      read_row(args.keys, args.keys.row(args.places.pages[static_cast<std::size_t>(token)], position), 0, dim, key.data());
      double score = 0;
      for (std::int64_t head = 0; head < heads; ++head) {
        const float* q = args.q.f32() + (token * heads + head) * dim;
        double dot = 0;
        for (std::int64_t i = 0; i < dim; ++i) dot += static_cast<double>(q[i]) * key[static_cast<std::size_t>(i)];
        score += static_cast<double>(args.weights.f32()[token * heads + head]) * args.scale * std::max(dot, 0.0);
      }
      scores[static_cast<std::size_t>(position)] = static_cast<float>(score);
    }
    select_top_k(scores.data(), context, top_k, args.selection.positions.i32() + token * top_k);
  }
}

}  // namespace reckoner
