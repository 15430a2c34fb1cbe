#include "ops/attend_grouped.h"

#include "ops/attend_rows.h"

namespace reckoner {

Status check(const AttendGroupedArgs& args) {
  constexpr std::string_view op = AttendGroupedArgs::kName;
  TRY(expect_that(args.q.shape.rank() == 3, op, "q must be [tokens, heads, head_dim]"));
  TRY(expect_tensor(op, "q", args.q, DType::f32, args.q.shape));
  TRY(expect_tensor(op, "y", args.y, DType::f32, args.q.shape));
  TRY(expect_tensor(op, "places.positions", args.places.positions, DType::i32, {args.q.dim(0)}));
  TRY(expect_that(args.kv_heads > 0 && args.q.dim(1) % args.kv_heads == 0, op, "the heads must be a multiple of kv_heads"));
  const std::int64_t width = args.kv_heads * args.q.dim(2);
  TRY(expect_cache(op, args.keys, width, "a row of keys must hold kv_heads * head_dim elements"));
  return expect_cache(op, args.values, width, "a row of values must hold kv_heads * head_dim elements");
}

Cost cost(const AttendGroupedArgs& args) {
  const auto context = static_cast<double>(args.max_context);
  return {.bytes = context * static_cast<double>(args.keys.row_bytes() + args.values.row_bytes()) +
                   static_cast<double>(args.q.bytes() + args.y.bytes()),
          .multiply_adds = 2 * context * static_cast<double>(args.q.shape.elements())};
}

void reference(const AttendGroupedArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t width = args.q.dim(2);
  const std::int64_t group = heads / args.kv_heads;
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const std::int32_t* pages = args.places.pages[static_cast<std::size_t>(token)];
    for (std::int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      RowsOfFloats keys, values;  // [context][head_dim]
      for (std::int64_t position = 0; position <= args.places.positions.i32()[token]; ++position) {
        keys.emplace_back(static_cast<std::size_t>(width));
        values.emplace_back(static_cast<std::size_t>(width));
        read_row(args.keys, args.keys.row(pages, position), kv_head * width, width, keys.back().data());
        read_row(args.values, args.values.row(pages, position), kv_head * width, width, values.back().data());
      }
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const std::int64_t at = (token * heads + head) * width;
        attend_rows(args.q.f32() + at, keys, values, args.scale, width, args.y.f32() + at);
      }
    }
  }
}

}  // namespace reckoner
