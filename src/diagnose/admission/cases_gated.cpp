// Cases of the ops of a feed-forward layer that are several others in one go.
#include "diagnose/admission/case.h"
#include "diagnose/admission/gated_cases.h"

namespace reckoner::admission {
namespace {

struct Size {
  std::int64_t experts, tokens, top_k, out, in;
};

// Uneven: some experts get many tokens, some none.
ExpertsCase::Choose uneven(std::int64_t experts) {
  return [experts](std::int64_t token, std::int64_t rank) { return token % 3 == 0 ? (token + rank) % experts : rank; };
}

Case<GatedLinearArgs> gated_linear_case(const Size& size, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  const auto c = std::make_shared<const GatedLinearCase>(key.format, size.tokens, size.out, fitting(key.format, size.in), random);
  return {.shapes = c->x->shape.to_string() + " to " + c->y->shape.to_string(),
          .memory = c,
          .args = c->args(key.precision),
          .allowed = [c, key](std::string_view) { return gated_bounds(c->args(key.precision)); }};
}

Case<GatedExpertsArgs> gated_experts_case(const Size& size, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  const auto c = std::make_shared<const GatedExpertsCase>(key.format, size.experts, size.tokens, size.top_k, size.out,
                                                          fitting(key.format, size.in), uneven(size.experts), random);
  return {
      .shapes = c->gate.x->shape.to_string() + " to " + c->gate.y->shape.to_string() + " of " + std::to_string(size.experts) + " experts",
      .memory = c,
      .args = c->args(key.precision),
      .allowed = [c, key](std::string_view) { return gated_bounds(c->args(key.precision)); }};
}

Case<ExpertsCombineArgs> experts_combine_case(const Size& size, QuantFormat shared, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  const std::int64_t in = fitting(key.format, size.in);
  const auto c = std::make_shared<const ExpertsCombineCase>(key.format, size.experts, size.tokens, size.top_k, size.out, in, shared,
                                                            fitting(shared, in), uneven(size.experts), random);
  return {.shapes = c->experts.x->shape.to_string() + " to " + c->y->shape.to_string() + " of " + std::to_string(size.experts) + " experts",
          .memory = c,
          .args = c->args(key.precision),
          .allowed = [c, key](std::string_view) { return combine_bounds(c->args(key.precision)); }};
}

// Few tokens and many; columns that are whole chunks and some that are not.
std::vector<Size> sizes_of(const Shapes& shapes) {
  std::vector<Size> sizes = {{8, 1, 2, 33, 96}, {9, 12, 3, 67, 160}, {4, 40, 2, 9, 256}, {9, 8, 4, 20, 256}, {5, 1, 3, 8, 384}};
  for (const std::int64_t width : shapes.widths) sizes.push_back({4, 3, 2, 8, width});
  return sizes;
}

}  // namespace

Cases<GatedLinearArgs> cases_of(const GatedLinearArgs*, const Key& key, const Shapes& shapes) {
  Cases<GatedLinearArgs> cases;
  for (const Size& size : sizes_of(shapes)) cases.push_back([=] { return gated_linear_case(size, key); });
  return cases;
}

Cases<GatedExpertsArgs> cases_of(const GatedExpertsArgs*, const Key& key, const Shapes& shapes) {
  Cases<GatedExpertsArgs> cases;
  for (const Size& size : sizes_of(shapes)) cases.push_back([=] { return gated_experts_case(size, key); });
  return cases;
}

Cases<ExpertsCombineArgs> cases_of(const ExpertsCombineArgs*, const Key& key, const Shapes& shapes) {
  Cases<ExpertsCombineArgs> cases;
  for (const Size& size : sizes_of(shapes)) {
    const QuantFormat shared = cases.size() % 2 == 0 ? QuantFormat::bf16 : key.format;
    cases.push_back([=] { return experts_combine_case(size, shared, key); });
  }
  return cases;
}

}  // namespace reckoner::admission
