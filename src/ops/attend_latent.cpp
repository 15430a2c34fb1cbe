#include "ops/attend_latent.h"

#include <algorithm>

#include "ops/attend_rows.h"

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

void reference(const AttendLatentArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t width = args.q.dim(2);
  const bool sparse = !args.selection.counts.empty();
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const std::int64_t count = sparse ? args.selection.counts.i32()[token] : args.places.positions.i32()[token] + 1;
    RowsOfFloats rows;  // [count][latent + rope]
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = sparse ? args.selection.positions.i32()[token * args.selection.top_k() + i] : i;
      rows.emplace_back(static_cast<std::size_t>(width));
      read_row(args.cache, args.cache.row(args.places.pages[static_cast<std::size_t>(token)], position), 0, width, rows.back().data());
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      attend_rows(args.q.f32() + (token * heads + head) * width, rows, rows, args.scale, args.y.dim(2),
                  args.y.f32() + (token * heads + head) * args.y.dim(2));
    }
  }
}

}  // namespace reckoner
