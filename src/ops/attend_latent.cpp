#include "ops/attend_latent.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reckoner {

Status check(const AttendLatentArgs& args) {
  constexpr std::string_view op = AttendLatentArgs::kName;
  TRY(expect_that(args.q.shape.rank() == 3 && args.y.shape.rank() == 3, op, "q must be [tokens, heads, latent + rope]"));
  const std::int64_t tokens = args.q.dim(0);
  TRY(expect_tensor(op, "q", args.q, DType::f32, args.q.shape));
  TRY(expect_that(args.y.dim(2) <= args.q.dim(2), op, "y must be no wider than q"));
  TRY(expect_tensor(op, "y", args.y, DType::f32, {tokens, args.q.dim(1), args.y.dim(2)}));
  TRY(expect_tensor(op, "places.positions", args.places.positions, DType::i32, {tokens}));
  if (args.selection.counts.shape.rank() != 0) {
    TRY(expect_tensor(op, "selection.counts", args.selection.counts, DType::i32, {tokens}));
    TRY(expect_tensor(op, "selection.positions", args.selection.positions, DType::i32, {tokens, args.selection.positions.dim(1)}));
  }
  return expect_cache(op, args.cache, args.q.dim(2), "a cache row must hold latent + rope elements");
}

Cost cost(const AttendLatentArgs& args) {
  const std::int64_t attended =
      args.selection.counts.shape.rank() != 0 ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
  const auto tokens = static_cast<double>(args.q.dim(0));
  return {.bytes = static_cast<double>(attended * args.cache.row_bytes() + args.q.bytes() + args.y.bytes()),
          .multiply_adds = tokens * static_cast<double>(attended * args.q.dim(1)) * static_cast<double>(args.q.dim(2) + args.y.dim(2))};
}

namespace {

// Attention of one query head over the rows at `keys`.
void attend(const AttendLatentArgs& args, const float* q, const std::vector<std::vector<float>>& rows, float* y) {
  const std::int64_t latent = args.y.dim(2);
  std::vector<double> p;
  for (const std::vector<float>& row : rows) {
    double dot = 0;
    for (std::size_t i = 0; i < row.size(); ++i) dot += static_cast<double>(q[i]) * row[i];
    p.push_back(dot * args.scale);
  }
  const double largest = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - largest);
  for (std::int64_t i = 0; i < latent; ++i) {
    double value = 0;
    for (std::size_t s = 0; s < rows.size(); ++s) value += p[s] / sum * rows[s][static_cast<std::size_t>(i)];
    y[i] = static_cast<float>(value);
  }
}

}  // namespace

void reference(const AttendLatentArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t width = args.q.dim(2);
  const bool sparse = !args.selection.counts.empty();
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const std::int64_t count = sparse ? args.selection.counts.i32()[token] : args.places.positions.i32()[token] + 1;
    std::vector<std::vector<float>> rows;  // [count][latent + rope]
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = sparse ? args.selection.positions.i32()[token * args.selection.top_k() + i] : i;
      rows.emplace_back(static_cast<std::size_t>(width));
      read_row(args.cache, args.cache.row(args.places.pages[static_cast<std::size_t>(token)], position), 0, width, rows.back().data());
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      attend(args, args.q.f32() + (token * heads + head) * width, rows, args.y.f32() + (token * heads + head) * args.y.dim(2));
    }
  }
}

}  // namespace reckoner
