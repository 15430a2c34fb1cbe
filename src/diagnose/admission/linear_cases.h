// Cases of the ops with a matrix, and the sums of magnitudes that their errors are measured against.
#pragma once

#include <functional>
#include <numeric>

#include "diagnose/admission/owned.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/linear_experts.h"
#include "ops/linear_group.h"

namespace reckoner::admission {

using Floats = std::vector<float>;

// `cols`, or the next number that the format's blocks divide.
inline std::int64_t fitting(QuantFormat format, std::int64_t cols) {
  const std::int64_t multiple = info(format).cols_multiple;
  return (cols + multiple - 1) / multiple * multiple;
}

struct LinearCase {
  OwnedWeight w;
  OwnedTensor x;  // [tokens, in]
  OwnedTensor y;  // [tokens, out]

  LinearCase(QuantFormat format, std::int64_t tokens, std::int64_t out, std::int64_t in, Random& random, std::int64_t first_row = 0)
      : w(format, out, in, random, first_row), x({tokens, in}, random.floats(tokens * in)), y(DType::f32, {tokens, out}) {}
  LinearArgs args(Precision precision) const { return {.x = *x, .w = *w, .y = *y, .precision = precision}; }
};

// sum_k |w_k x_k| of each element of y.
inline Floats linear_magnitudes(const LinearArgs& args) {
  const Weight& w = args.w;
  const Floats values = dequantised(w);
  Floats sums(static_cast<std::size_t>(args.y.shape.elements()));
  for (std::int64_t i = 0; i < args.y.shape.elements(); ++i) {
    const float* x = args.x.f32() + i / w.rows * w.cols;
    const float* row = values.data() + i % w.rows * w.cols;
    double sum = 0;
    for (std::int64_t k = 0; k < w.cols; ++k) sum += std::fabs(static_cast<double>(x[k]) * row[k]);
    sums[static_cast<std::size_t>(i)] = static_cast<float>(sum);
  }
  return sums;
}
inline Floats linear_magnitudes(const LinearCase& c) { return linear_magnitudes(c.args(Precision::exact)); }

struct GroupSize {
  std::int64_t tokens, in;
  std::vector<std::int64_t> out;  // of each part
  bool normed;
};

struct GroupCase {
  std::vector<OwnedWeight> weights;
  std::vector<OwnedTensor> y;  // [tokens, out] each
  OwnedTensor x;               // [tokens, in]
  OwnedTensor norm;            // [in]
  bool normed;

  GroupCase(QuantFormat format, const GroupSize& size, Random& random)
      : x({size.tokens, size.in}, random.floats(size.tokens * size.in)), norm({size.in}, random.floats(size.in)), normed(size.normed) {
    for (const std::int64_t out : size.out) {
      weights.emplace_back(format, out, size.in, random);
      y.emplace_back(DType::f32, Shape{size.tokens, out});
    }
  }
  // Without a norm the last of several parts is exact, as that of an indexer is.
  LinearGroupArgs args(Precision precision) const {
    LinearGroupArgs group{.x = *x, .norm = {}, .epsilon = 0, .count = static_cast<int>(weights.size()), .parts = {}};
    if (normed) group.norm = *norm, group.epsilon = 1e-5f;
    for (std::size_t i = 0; i < weights.size(); ++i) group.parts[i] = {.w = *weights[i], .y = *y[i], .precision = precision};
    if (!normed && weights.size() > 1) group.parts[weights.size() - 1].precision = Precision::exact;
    return group;
  }
};

// sum_k |w_k x'_k| of each element of a part's y.
inline Floats group_magnitudes(const LinearGroupArgs& args, int part) {
  const OwnedTensor normed(DType::f32, args.x.shape);
  if (args.norm.empty()) return linear_magnitudes(linear_of(args, part, args.x));
  reference(norm_of(args, *normed));
  return linear_magnitudes(linear_of(args, part, *normed));
}

struct ExpertsCase {
  std::vector<OwnedWeight> owners;
  std::vector<Weight> experts;
  std::vector<std::int32_t> begin, tokens_of_slots;
  OwnedTensor begin_tensor, tokens_tensor;
  OwnedTensor x;  // [tokens or slots, in]
  OwnedTensor y;  // [slots, out]
  LinearExpertsArgs::Rows rows;

  // `choose(token, rank)`: the expert of a token's rank-th choice.
  using Choose = std::function<std::int64_t(std::int64_t token, std::int64_t rank)>;
  ExpertsCase(QuantFormat format, std::int64_t expert_count, std::int64_t tokens, std::int64_t top_k, std::int64_t out, std::int64_t in,
              LinearExpertsArgs::Rows x_rows, const Choose& choose, Random& random)
      : owners(some_weights(format, expert_count, out, in, random)),
        experts(views(owners)),
        begin(static_cast<std::size_t>(expert_count) + 1),
        tokens_of_slots(sorted_slots(expert_count, tokens, top_k, choose, begin)),
        begin_tensor({expert_count + 1}, begin),
        tokens_tensor({tokens * top_k}, tokens_of_slots),
        x({x_rows == LinearExpertsArgs::Rows::by_token ? tokens : tokens * top_k, in},
          random.floats((x_rows == LinearExpertsArgs::Rows::by_token ? tokens : tokens * top_k) * in)),
        y(DType::f32, {tokens * top_k, out}),
        rows(x_rows) {}

  LinearExpertsArgs args(Precision precision) const {
    return {.x = *x,
            .experts = experts,
            .slots = {.begin = *begin_tensor, .tokens = *tokens_tensor},
            .rows = rows,
            .y = *y,
            .precision = precision};
  }

  static std::vector<OwnedWeight> some_weights(QuantFormat format, std::int64_t count, std::int64_t out, std::int64_t in, Random& random) {
    std::vector<OwnedWeight> weights;
    for (std::int64_t i = 0; i < count; ++i) weights.emplace_back(format, out, in, random);
    return weights;
  }
  static std::vector<Weight> views(const std::vector<OwnedWeight>& owners) {
    std::vector<Weight> weights;
    for (const OwnedWeight& owner : owners) weights.push_back(*owner);
    return weights;
  }
  static std::vector<std::int32_t> sorted_slots(std::int64_t experts, std::int64_t tokens, std::int64_t top_k, const Choose& choose,
                                                std::vector<std::int32_t>& begin) {
    std::vector<std::int32_t> slots;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      begin[static_cast<std::size_t>(expert)] = static_cast<std::int32_t>(slots.size());
      for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t rank = 0; rank < top_k; ++rank) {
          if (choose(token, rank) == expert) slots.push_back(static_cast<std::int32_t>(token));
        }
      }
    }
    begin.back() = static_cast<std::int32_t>(slots.size());
    return slots;
  }
};

// One slot's linear layer: what a kernel of linear_experts must reproduce.
inline LinearArgs linear_of_slot(const LinearExpertsArgs& args, std::int64_t slot, const Tensor& y) {
  std::size_t expert = 0;
  while (args.slots.begin.i32()[expert + 1] <= slot) ++expert;
  const std::int64_t row = args.rows == LinearExpertsArgs::Rows::by_token ? args.slots.tokens.i32()[slot] : slot;
  return {.x = args.x.rows(row, 1), .w = args.experts[expert], .y = y, .precision = args.precision};
}

// sum_k |w_k x_k| of each element of y.
inline Floats experts_magnitudes(const LinearExpertsArgs& args) {
  Floats magnitudes;
  Floats w;
  for (std::int64_t slot = 0; slot < args.y.dim(0); ++slot) {
    const LinearArgs linear = linear_of_slot(args, slot, args.y.rows(slot, 1));
    if (slot == 0 || linear.w.data != linear_of_slot(args, slot - 1, args.y).w.data) w = dequantised(linear.w);
    for (std::int64_t out = 0; out < linear.w.rows; ++out) {
      const float* row = w.data() + out * linear.w.cols;
      magnitudes.push_back(std::inner_product(row, row + linear.w.cols, linear.x.f32(), 0.0f, std::plus<>(),
                                              [](float a, float b) { return std::fabs(a * b); }));
    }
  }
  return magnitudes;
}

struct LatentShape {
  std::int64_t tokens, heads, nope, v, rope, latent;
};

struct LatentCase {
  LatentShape shape;
  OwnedWeight kv_b;      // [heads * (nope + v), latent]
  OwnedTensor q;         // [tokens, heads, nope + rope]
  OwnedTensor q_out;     // [tokens, heads, latent + rope]
  OwnedTensor attended;  // [tokens, heads, latent]
  OwnedTensor value;     // [tokens, heads, v]

  LatentCase(QuantFormat format, const LatentShape& s, Random& random)
      : shape(s),
        kv_b(format, s.heads * (s.nope + s.v), s.latent, random),
        q({s.tokens, s.heads, s.nope + s.rope}, random.floats(s.tokens * s.heads * (s.nope + s.rope))),
        q_out(DType::f32, {s.tokens, s.heads, s.latent + s.rope}),
        attended({s.tokens, s.heads, s.latent}, random.floats(s.tokens * s.heads * s.latent)),
        value(DType::f32, {s.tokens, s.heads, s.v}) {}

  LatentQueryArgs args(const LatentQueryArgs*, Precision precision) const {
    return {.q = *q, .kv_b = *kv_b, .nope = shape.nope, .y = *q_out, .precision = precision};
  }
  LatentValueArgs args(const LatentValueArgs*, Precision precision) const {
    return {.x = *attended, .kv_b = *kv_b, .nope = shape.nope, .y = *value, .precision = precision};
  }
  std::int64_t terms(const LatentQueryArgs*) const { return shape.nope; }
  std::int64_t terms(const LatentValueArgs*) const { return shape.latent; }

  // The same sums with magnitudes for numbers: the reference on absolute values of plain weights.
  template <class Args>
  Floats magnitudes() const {
    Floats values = dequantised(*kv_b);
    for (float& number : values) number = std::fabs(number);
    Weight plain = *kv_b;
    plain.format = QuantFormat::f32;
    plain.data = reinterpret_cast<const std::byte*>(values.data());
    plain.scales = nullptr;
    plain.scale = 1.0f;
    const Args mine = args(static_cast<Args*>(nullptr), Precision::exact);
    const OwnedTensor y(DType::f32, mine.y.shape);
    Floats input = values_of(input_of(mine));
    for (float& number : input) number = std::fabs(number);
    const OwnedTensor x(input_of(mine).shape, input);
    Args absolute = mine;
    input_of(absolute) = *x;
    absolute.kv_b = plain;
    absolute.y = *y;
    reference(absolute);
    return values_of(*y);
  }
  static Tensor& input_of(LatentQueryArgs& args) { return args.q; }
  static Tensor& input_of(LatentValueArgs& args) { return args.x; }
  static const Tensor& input_of(const LatentQueryArgs& args) { return args.q; }
  static const Tensor& input_of(const LatentValueArgs& args) { return args.x; }
};

}  // namespace reckoner::admission
