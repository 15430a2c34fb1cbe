// Cases of attention and of the indexer.
#include "diagnose/admission/attend_cases.h"
#include "diagnose/admission/case.h"

namespace reckoner::admission {
namespace {

struct AttendSize {
  std::int64_t heads, latent, rope;
  DType cache;
  std::int64_t top_k;
  std::vector<std::int64_t> contexts;
  std::int64_t tokens;
};

std::vector<double> attend_bounds(const AttendCase& c) {
  std::vector<double> allowed;
  for (std::int64_t row = 0; row < c.count() * c.heads; ++row)
    allowed.insert(allowed.end(), static_cast<std::size_t>(c.latent), attend_bound(c, row / c.heads, row % c.heads));
  return allowed;
}

Case<AttendLatentArgs> attend_case(const AttendSize& size) {
  Random random(static_cast<std::uint64_t>(size.heads * 131 + size.latent));
  const std::vector<TokenCase> tokens = some_tokens(size.contexts, size.tokens, random);
  const auto c =
      std::make_shared<const AttendCase>(size.heads, size.latent, size.rope, size.cache, size.top_k, size.contexts, tokens, random);
  return {.shapes = c->q->shape.to_string() + " over " + std::to_string(c->max_context) + " positions, top " + std::to_string(size.top_k),
          .memory = c,
          .args = c->args(),
          .allowed = [c](std::string_view) { return attend_bounds(*c); }};
}

struct GroupedSize {
  GroupedShape shape;
  DType keys, values;
  std::vector<std::int64_t> contexts;
  std::int64_t tokens;
};

// Of one query head, for each element of y.
double grouped_bound(const GroupedCase& c, std::int64_t token, std::int64_t head) {
  const TokenCase& place = c.tokens[static_cast<std::size_t>(token)];
  std::vector<std::vector<float>> keys, values;
  for (std::int64_t position = 0; position <= place.position; ++position) {
    keys.push_back(c.part(c.keys.row(place.sequence, position), c.kv_head_of(head)));
    values.push_back(c.part(c.values.row(place.sequence, position), c.kv_head_of(head)));
  }
  return attend_head_bound(c.q->f32() + (token * c.shape.heads + head) * c.shape.head_dim, keys, values, c.args().scale);
}

std::vector<double> grouped_bounds(const GroupedCase& c) {
  std::vector<double> allowed;
  for (std::int64_t row = 0; row < c.count() * c.shape.heads; ++row) {
    const double bound = grouped_bound(c, row / c.shape.heads, row % c.shape.heads);
    allowed.insert(allowed.end(), static_cast<std::size_t>(c.shape.head_dim), bound);
  }
  return allowed;
}

Case<AttendGroupedArgs> grouped_case(const GroupedSize& size) {
  Random random(static_cast<std::uint64_t>(size.shape.heads * 131 + size.shape.head_dim));
  const std::vector<TokenCase> tokens = some_tokens(size.contexts, size.tokens, random);
  const auto c = std::make_shared<const GroupedCase>(size.shape, size.keys, size.values, size.contexts, tokens, random);
  return {.shapes = c->q->shape.to_string() + " over " + std::to_string(c->max_context) + " positions",
          .memory = c,
          .args = c->args(),
          .allowed = [c](std::string_view) { return grouped_bounds(*c); }};
}

struct IndexSize {
  std::int64_t heads, dim, top_k;
  DType cache;
  std::vector<std::int64_t> contexts;
  std::int64_t tokens;
};

// Small integers: every sum is exact, so the selection must be the reference's, ties and all.
Case<IndexSelectArgs> index_case(const IndexSize& size) {
  Random random(static_cast<std::uint64_t>(size.heads * 131 + size.dim));
  const std::vector<TokenCase> tokens = some_tokens(size.contexts, size.tokens, random);
  const auto c = std::make_shared<const IndexCase>(size.heads, size.dim, size.cache, size.top_k, size.contexts, tokens,
                                                   Numbers::small_integers, random);
  c->reset();
  return {.shapes = c->q->shape.to_string() + " over " + std::to_string(c->max_context) + " positions, top " + std::to_string(size.top_k),
          .memory = c,
          .args = c->args()};
}

}  // namespace

Cases<AttendLatentArgs> cases_of(const AttendLatentArgs*, const Key&, const Shapes& shapes) {
  const std::int64_t heads = std::min<std::int64_t>(shapes.heads, 8);
  const std::vector<AttendSize> sizes = {
      {heads, shapes.latent, shapes.rope, shapes.cache, 0, {70}, 2},
      {heads, shapes.latent, shapes.rope, shapes.cache, 64, {1, 200}, 3},
      // As many selected as the model selects.
      {1, shapes.latent, shapes.rope, shapes.cache, shapes.index_top_k, {std::min<std::int64_t>(shapes.index_top_k, 2048) + 70}, 1},
      {17, 40, 16, shapes.cache, 0, {65, 63}, 5},
      {3, 160, 2, shapes.cache, 7, {130}, 2},
      {2, 32, 16, shapes.cache, 0, {1100}, 2}};
  Cases<AttendLatentArgs> cases;
  for (const AttendSize& size : sizes) cases.push_back([=] { return attend_case(size); });
  return cases;
}

Cases<AttendGroupedArgs> cases_of(const AttendGroupedArgs*, const Key&, const Shapes& shapes) {
  const std::int64_t kv_heads = std::min<std::int64_t>(shapes.kv_heads, 2);
  const GroupedShape own = {kv_heads * (shapes.heads / shapes.kv_heads), kv_heads, shapes.head_dim};
  const std::vector<GroupedSize> sizes = {{own, shapes.cache, shapes.cache, {70}, 2},
                                          {{6, 2, 32}, shapes.cache, shapes.cache, {1, 65, 63}, 5},
                                          {{3, 3, 40}, shapes.cache, shapes.cache, {200}, 3},
                                          {{17, 1, 8}, shapes.cache, shapes.cache, {1100}, 2}};
  Cases<AttendGroupedArgs> cases;
  for (const GroupedSize& size : sizes) cases.push_back([=] { return grouped_case(size); });
  return cases;
}

Cases<IndexSelectArgs> cases_of(const IndexSelectArgs*, const Key&, const Shapes& shapes) {
  const std::int64_t heads = std::min<std::int64_t>(shapes.index_heads, 8);
  const std::vector<IndexSize> sizes = {
      {heads, shapes.index_dim, 16, shapes.cache, {1, 200}, 3},
      {2, shapes.index_dim, shapes.index_top_k, shapes.cache, {std::min<std::int64_t>(shapes.index_top_k, 2048) + 70}, 1},
      {3, 40, 7, shapes.cache, {65, 130}, 5},
      {17, 32, 64, shapes.cache, {700}, 2}};
  Cases<IndexSelectArgs> cases;
  for (const IndexSize& size : sizes) cases.push_back([=] { return index_case(size); });
  return cases;
}

}  // namespace reckoner::admission
