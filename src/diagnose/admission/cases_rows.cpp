// Cases of the ops on rows. Where a kernel does the reference's operations in the reference's order the bits must agree.
#include <numeric>

#include "diagnose/admission/case.h"
#include "diagnose/admission/rows_cases.h"

namespace reckoner::admission {
namespace {

struct Size {
  std::int64_t tokens, width;
};

std::vector<Size> sizes_of(const Shapes& shapes) { return {{1, shapes.hidden}, {3, 67}, {9, 40}, {33, 16}, {2, 1000}}; }

Random random_of(const Size& size) { return Random(static_cast<std::uint64_t>(size.tokens * 131 + size.width)); }

// `make(size)` for each size.
template <class Args, class Make>
Cases<Args> cases_for(const std::vector<Size>& sizes, const Make& make) {
  Cases<Args> cases;
  for (const Size& size : sizes) cases.push_back([=] { return make(size); });
  return cases;
}

template <class Args, class Memory>
Case<Args> equal_case(const std::shared_ptr<Memory>& memory, const Args& args, const Tensor& main) {
  return {.shapes = main.shape.to_string(), .memory = memory, .args = args};
}

// The sum of squares has only positive terms: off by width ulp, its root by half of that; a few ulp for root, division and products.
std::vector<double> norm_bounds(const NormCase& c, std::string_view output) {
  std::vector<double> allowed;
  if (output != "y" && output != "guard.rms") return allowed;
  const double relative = kUlp * (static_cast<double>(c.x->dim(1)) / 2 + 8);
  for (const float value : values_of(output == "y" ? *c.y : *c.rms)) allowed.push_back(relative * std::fabs(value) + 0x1p-126);
  return allowed;
}

struct Rows {
  OwnedTensor a, b, y;
};

// exp is off by 4 ulp in a kernel and 2 in the reference, then an addition, a division and a product each; where exp(-gate) leaves the
// range of float, both are below |gate| * 2^-125.
std::vector<double> silu_bounds(const Rows& rows) {
  std::vector<double> allowed;
  for (std::int64_t i = 0; i < rows.y->shape.elements(); ++i) {
    allowed.push_back(16 * kUlp * std::fabs(static_cast<double>(rows.y->f32()[i])) +
                      std::fabs(static_cast<double>(rows.a->f32()[i])) * 0x1p-125);
  }
  return allowed;
}

Case<SiluMulArgs> silu_case(const Size& size) {
  Random random = random_of(size);
  const Shape shape{size.tokens, size.width};
  const auto rows = std::make_shared<const Rows>(Rows{.a = OwnedTensor(shape, random.floats(shape.elements())),
                                                      .b = OwnedTensor(shape, random.floats(shape.elements())),
                                                      .y = OwnedTensor(DType::f32, shape)});
  for (std::int64_t i = 0; i < shape.elements(); i += 2) rows->a->f32()[i] *= 20;
  return {.shapes = shape.to_string(),
          .memory = rows,
          .args = {.gate = *rows->a, .up = *rows->b, .y = *rows->y},
          .allowed = [rows](std::string_view) { return silu_bounds(*rows); }};
}

struct Mixed {
  OwnedTensor rows, weights, slot_of, shared, y;
};

Case<CombineArgs> combine_case(const Size& size, std::int64_t top_k) {
  Random random = random_of(size);
  std::vector<std::int32_t> slots(static_cast<std::size_t>(size.tokens * top_k));
  std::iota(slots.begin(), slots.end(), 0);
  for (std::size_t i = slots.size(); i > 1; --i) std::swap(slots[i - 1], slots[static_cast<std::size_t>(random.below(std::ssize(slots)))]);
  const auto mixed = std::make_shared<const Mixed>(
      Mixed{.rows = OwnedTensor({size.tokens * top_k, size.width}, random.floats(size.tokens * top_k * size.width)),
            .weights = OwnedTensor({size.tokens, top_k}, random.floats(size.tokens * top_k)),
            .slot_of = OwnedTensor({size.tokens, top_k}, slots),
            .shared = OwnedTensor({size.tokens, size.width}, random.floats(size.tokens * size.width)),
            .y = OwnedTensor(DType::f32, {size.tokens, size.width})});
  const CombineArgs args = {.rows = *mixed->rows,
                            .weights = *mixed->weights,
                            .slot_of = *mixed->slot_of,
                            .shared = size.tokens % 2 == 0 ? Tensor() : *mixed->shared,
                            .y = *mixed->y};
  return equal_case(mixed, args, args.y);
}

struct Rotated {
  OwnedTensor x;
  Angles angles;
};

struct RopeSize {
  std::int64_t tokens, heads, first, pairs, after;
  RopeLayout layout;
};

Case<RopeHeadsArgs> rope_case(const RopeSize& size) {
  Random random(static_cast<std::uint64_t>(size.pairs));
  const Shape shape{size.tokens, size.heads, size.first + 2 * size.pairs + size.after};
  const auto rotated = std::make_shared<const Rotated>(
      Rotated{.x = OwnedTensor(shape, random.floats(shape.elements())), .angles = Angles(size.tokens, size.pairs, random)});
  const RopeHeadsArgs args = {
      .x = *rotated->x, .first = size.first, .layout = size.layout, .cosine = *rotated->angles.cosine, .sine = *rotated->angles.sine};
  return equal_case(rotated, args, args.x);
}

struct RouteSize {
  std::int64_t tokens, experts, top_k, groups, top_groups;
};

Case<RouteArgs> route_case(const RouteSize& size) {
  Random random(static_cast<std::uint64_t>(size.experts));
  const auto c = std::make_shared<const RouteCase>(size.tokens, size.experts, size.top_k, size.groups, size.top_groups, random);
  return equal_case(c, c->args(), *c->logits);
}

std::vector<std::int32_t> numbers_below(std::int64_t limit, std::int64_t count, Random& random) {
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<std::int32_t>(random.below(limit)));
  return numbers;
}

}  // namespace

Cases<RmsNormArgs> cases_of(const RmsNormArgs*, const Key&, const Shapes& shapes) {
  return cases_for<RmsNormArgs>(sizes_of(shapes), [](const Size& size) -> Case<RmsNormArgs> {
    Random random = random_of(size);
    const auto c = std::make_shared<const NormCase>(size.tokens, size.width, size.tokens % 2 == 1, random);
    c->reset();
    return {.shapes = c->x->shape.to_string(), .memory = c, .args = c->args(), .allowed = [c](std::string_view output) {
              return norm_bounds(*c, output);
            }};
  });
}

Cases<SiluMulArgs> cases_of(const SiluMulArgs*, const Key&, const Shapes& shapes) {
  return cases_for<SiluMulArgs>(sizes_of(shapes), silu_case);
}

Cases<AddBiasArgs> cases_of(const AddBiasArgs*, const Key&, const Shapes& shapes) {
  return cases_for<AddBiasArgs>(sizes_of(shapes), [](const Size& size) {
    Random random = random_of(size);
    const Shape shape{size.tokens, size.width};
    const auto rows = std::make_shared<const Rows>(Rows{.a = OwnedTensor(shape, random.floats(shape.elements())),
                                                        .b = OwnedTensor({size.width}, random.floats(size.width)),
                                                        .y = OwnedTensor(DType::f32, {1})});
    return equal_case(rows, AddBiasArgs{.x = *rows->a, .bias = *rows->b}, *rows->a);
  });
}

Cases<CombineArgs> cases_of(const CombineArgs*, const Key&, const Shapes& shapes) {
  return cases_for<CombineArgs>(sizes_of(shapes), [top_k = shapes.top_k](const Size& size) { return combine_case(size, top_k); });
}

Cases<GatherRowsArgs> cases_of(const GatherRowsArgs*, const Key&, const Shapes& shapes) {
  return cases_for<GatherRowsArgs>(sizes_of(shapes), [](const Size& size) {
    Random random = random_of(size);
    const auto rows =
        std::make_shared<const Rows>(Rows{.a = OwnedTensor({size.tokens, size.width}, random.floats(size.tokens * size.width)),
                                          .b = OwnedTensor({6}, numbers_below(size.tokens, 6, random)),
                                          .y = OwnedTensor(DType::f32, {6, size.width})});
    return equal_case(rows, GatherRowsArgs{.x = *rows->a, .rows = *rows->b, .y = *rows->y}, *rows->y);
  });
}

Cases<EmbedArgs> cases_of(const EmbedArgs*, const Key& key, const Shapes& shapes) {
  struct Table {
    OwnedWeight table;
    OwnedTensor tokens, y;
  };
  return cases_for<EmbedArgs>({{5, 64}, {1, 256}, {3, shapes.hidden}}, [format = key.format](const Size& size) {
    Random random = random_of(size);
    const std::int64_t multiple = info(format).cols_multiple;
    const std::int64_t width = (size.width + multiple - 1) / multiple * multiple;
    const auto table = std::make_shared<const Table>(Table{.table = OwnedWeight(format, 30, width, random),
                                                           .tokens = OwnedTensor({size.tokens}, numbers_below(30, size.tokens, random)),
                                                           .y = OwnedTensor(DType::f32, {size.tokens, width})});
    return equal_case(table, EmbedArgs{.tokens = *table->tokens, .table = *table->table, .y = *table->y}, *table->y);
  });
}

Cases<RopeAnglesArgs> cases_of(const RopeAnglesArgs*, const Key&, const Shapes& shapes) {
  struct Places {
    OwnedTensor positions, frequencies, cosine, sine;
  };
  return cases_for<RopeAnglesArgs>({{50, shapes.rope / 2}, {1, 1}, {7, 9}}, [](const Size& size) {
    Random random = random_of(size);
    const Shape shape{size.tokens, size.width};
    const auto places =
        std::make_shared<const Places>(Places{.positions = OwnedTensor({size.tokens}, numbers_below(1 << 20, size.tokens, random)),
                                              .frequencies = OwnedTensor({size.width}, random.floats(size.width)),
                                              .cosine = OwnedTensor(DType::f32, shape),
                                              .sine = OwnedTensor(DType::f32, shape)});
    const RopeAnglesArgs args = {
        .positions = *places->positions, .frequencies = *places->frequencies, .cosine = *places->cosine, .sine = *places->sine};
    return equal_case(places, args, args.cosine);
  });
}

Cases<RopeHeadsArgs> cases_of(const RopeHeadsArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  const std::vector<RopeSize> sizes = {{3, 4, shapes.nope, shapes.rope / 2, 0, interleaved},
                                       {2, 3, 0, shapes.rope / 2, 1, half_split},
                                       {5, 1, 3, 9, 2, interleaved},
                                       {1, 64, 0, 33, 0, half_split}};
  Cases<RopeHeadsArgs> cases;
  for (const RopeSize& size : sizes) cases.push_back([=] { return rope_case(size); });
  return cases;
}

Cases<RouteArgs> cases_of(const RouteArgs*, const Key&, const Shapes& shapes) {
  const std::vector<RouteSize> sizes = {{3, shapes.experts, shapes.top_k, shapes.groups, shapes.top_groups},
                                        {40, shapes.experts, shapes.top_k, shapes.groups, shapes.top_groups},
                                        {7, 9, 4, 1, 1},
                                        {5, 32, 3, 4, 2}};
  Cases<RouteArgs> cases;
  for (const RouteSize& size : sizes) cases.push_back([=] { return route_case(size); });
  return cases;
}

}  // namespace reckoner::admission
