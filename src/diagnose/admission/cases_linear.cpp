// Cases of the ops with a matrix.
#include "diagnose/admission/case.h"
#include "diagnose/admission/linear_cases.h"

namespace reckoner::admission {
namespace {

// |error| <= tolerance * the sum of magnitudes behind an element, plus what denormals may lose.
std::vector<double> bounds(const Floats& magnitudes, Precision precision, std::int64_t terms) {
  std::vector<double> allowed;
  const double tolerance = linear_tolerance(precision, terms);
  for (const float magnitude : magnitudes) allowed.push_back(tolerance * magnitude + static_cast<double>(terms) * 0x1p-126);
  return allowed;
}

struct LinearSize {
  std::int64_t tokens, out, in, first_row;
};

Case<LinearArgs> linear_case(const LinearSize& size, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  const std::int64_t in = fitting(key.format, size.in);
  const auto c = std::make_shared<const LinearCase>(key.format, size.tokens, size.out, in, random, size.first_row);
  return {.shapes = c->x->shape.to_string() + " x " + Shape{size.out, in}.to_string() + "^T",
          .memory = c,
          .args = c->args(key.precision),
          .allowed = [c, key](std::string_view) { return bounds(linear_magnitudes(*c), key.precision, c->w->cols); }};
}

Case<LinearGroupArgs> group_case(GroupSize size, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  size.in = fitting(key.format, size.in);
  const auto c = std::make_shared<const GroupCase>(key.format, size, random);
  const LinearGroupArgs args = c->args(key.precision);
  const auto allowed = [c, args](std::string_view output) {
    const int part = part_of(output);
    std::vector<double> bounds;
    for (const float magnitude : group_magnitudes(args, part))
      bounds.push_back(linear_group_tolerance(args, part) * magnitude + static_cast<double>(args.x.dim(1)) * 0x1p-126);
    return bounds;
  };
  return {
      .shapes = args.x.shape.to_string() + " to " + std::to_string(args.count) + " weights", .memory = c, .args = args, .allowed = allowed};
}

struct ExpertsSize {
  std::int64_t experts, tokens, top_k, out, in;
  LinearExpertsArgs::Rows rows;
};

Case<LinearExpertsArgs> experts_case(const ExpertsSize& size, const Key& key) {
  Random random(static_cast<std::uint64_t>(size.tokens * 131 + size.in));
  // Uneven: some experts get many tokens, some none.
  const auto choose = [&](std::int64_t token, std::int64_t rank) { return token % 3 == 0 ? (token + rank) % size.experts : rank; };
  const auto c = std::make_shared<const ExpertsCase>(key.format, size.experts, size.tokens, size.top_k, size.out,
                                                     fitting(key.format, size.in), size.rows, choose, random);
  const auto allowed = [c, key](std::string_view) {
    return bounds(experts_magnitudes(c->args(key.precision)), key.precision, c->experts.front().cols);
  };
  return {.shapes = c->x->shape.to_string() + " to " + c->y->shape.to_string() + " of " + std::to_string(size.experts) + " experts",
          .memory = c,
          .args = c->args(key.precision),
          .allowed = allowed};
}

template <class Args>
Case<Args> latent_case(LatentShape shape, const Key& key) {
  Random random(static_cast<std::uint64_t>(shape.tokens * 131 + shape.latent));
  shape.latent = fitting(key.format, shape.latent);
  const auto c = std::make_shared<const LatentCase>(key.format, shape, random);
  const auto* const op = static_cast<const Args*>(nullptr);
  const Args args = c->args(op, key.precision);
  const auto allowed = [c, key, op](std::string_view) { return bounds(c->template magnitudes<Args>(), key.precision, c->terms(op)); };
  return {.shapes = LatentCase::input_of(args).shape.to_string() + " to " + args.y.shape.to_string(),
          .memory = c,
          .args = args,
          .allowed = allowed};
}

template <class Args>
Cases<Args> latent_cases(const Key& key, const Shapes& shapes) {
  Cases<Args> cases;
  const LatentShape own = {.tokens = 2, .heads = 2, .nope = shapes.nope, .v = shapes.value, .rope = shapes.rope, .latent = shapes.latent};
  for (const LatentShape& shape :
       {own, LatentShape{1, 3, 33, 31, 2, 80}, LatentShape{9, 2, 16, 67, 0, 96}, LatentShape{40, 1, 5, 4, 64, 32}})
    cases.push_back([=] { return latent_case<Args>(shape, key); });
  return cases;
}

}  // namespace

Cases<LinearArgs> cases_of(const LinearArgs*, const Key& key, const Shapes& shapes) {
  // The last ones fill whole tiles, for which GPUs have kernels of their own.
  std::vector<LinearSize> sizes = {{1, 33, 96, 0},     {3, 67, 160, 100}, {9, 5, 544, 0},  {40, 66, 288, 1},
                                   {130, 33, 64, 127}, {20, 66, 640, 0},  {70, 66, 640, 0}};
  for (const std::int64_t width : shapes.widths) sizes.push_back({2, 16, width, 0});
  Cases<LinearArgs> cases;
  for (const LinearSize& size : sizes) cases.push_back([=] { return linear_case(size, key); });
  return cases;
}

Cases<LinearGroupArgs> cases_of(const LinearGroupArgs*, const Key& key, const Shapes& shapes) {
  std::vector<GroupSize> sizes = {{1, 256, {33, 5, 16, 7}, false}, {3, 128, {67, 40}, true},       {8, 384, {9}, true},
                                  {9, 96, {9, 5}, false},          {18, 256, {200, 7, 16}, false}, {70, 128, {9, 130}, true}};
  for (const std::int64_t width : shapes.widths) sizes.push_back({2, width, {16, 24}, sizes.size() % 2 == 0});
  Cases<LinearGroupArgs> cases;
  for (const GroupSize& size : sizes) cases.push_back([=] { return group_case(size, key); });
  return cases;
}

Cases<LinearExpertsArgs> cases_of(const LinearExpertsArgs*, const Key& key, const Shapes& shapes) {
  using enum LinearExpertsArgs::Rows;
  std::vector<ExpertsSize> sizes = {
      {8, 1, 2, 33, 96, by_token}, {9, 12, 3, 67, 160, by_slot}, {4, 40, 2, 9, 288, by_token}, {4, 70, 2, 34, 640, by_slot}};
  for (const std::int64_t width : shapes.widths) sizes.push_back({4, 3, 2, 8, width, sizes.size() % 2 == 0 ? by_token : by_slot});
  Cases<LinearExpertsArgs> cases;
  for (const ExpertsSize& size : sizes) cases.push_back([=] { return experts_case(size, key); });
  return cases;
}

Cases<LatentQueryArgs> cases_of(const LatentQueryArgs*, const Key& key, const Shapes& shapes) {
  return latent_cases<LatentQueryArgs>(key, shapes);
}
Cases<LatentValueArgs> cases_of(const LatentValueArgs*, const Key& key, const Shapes& shapes) {
  return latent_cases<LatentValueArgs>(key, shapes);
}

}  // namespace reckoner::admission
