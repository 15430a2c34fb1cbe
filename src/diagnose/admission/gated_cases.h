// Cases of the ops of a feed-forward layer that are several others in one go, and what their outputs may be off by.
#pragma once

#include "diagnose/admission/linear_cases.h"
#include "ops/experts_combine.h"
#include "ops/gated_experts.h"
#include "ops/gated_linear.h"

namespace reckoner::admission {

// What y may be off by, from gate and up in the reference's numbers and what each of those may be off by.
inline std::vector<double> gated_bounds(const Floats& gate, const Floats& gate_magnitudes, const Floats& up, const Floats& up_magnitudes,
                                        Precision precision, std::int64_t terms) {
  const double tolerance = linear_tolerance(precision, terms), slack = static_cast<double>(terms) * 0x1p-126;
  std::vector<double> bounds;
  for (std::size_t i = 0; i < gate.size(); ++i)
    bounds.push_back(gated_bound(gate[i], tolerance * gate_magnitudes[i] + slack, up[i], tolerance * up_magnitudes[i] + slack));
  return bounds;
}

inline std::vector<double> gated_bounds(const GatedLinearArgs& args) {
  const OwnedTensor gate(DType::f32, args.y.shape), up(DType::f32, args.y.shape);
  const LinearArgs gate_part{.x = args.x, .w = args.gate, .y = *gate}, up_part{.x = args.x, .w = args.up, .y = *up};
  reference(gate_part);
  reference(up_part);
  return gated_bounds(values_of(*gate), linear_magnitudes(gate_part), values_of(*up), linear_magnitudes(up_part), args.precision,
                      args.gate.cols);
}

inline std::vector<double> gated_bounds(const GatedExpertsArgs& args) {
  const OwnedTensor gate(DType::f32, args.y.shape), up(DType::f32, args.y.shape);
  reference(gate_of(args, *gate));
  reference(up_of(args, *up));
  return gated_bounds(values_of(*gate), experts_magnitudes(gate_of(args, *gate)), values_of(*up), experts_magnitudes(up_of(args, *up)),
                      args.precision, args.gate.front().cols);
}

// Beside what each part is off by, a float sum of top_k + 1 terms, each a product.
inline std::vector<double> combine_bounds(const ExpertsCombineArgs& args) {
  const std::int64_t width = args.y.dim(1), top_k = args.weights.dim(1);
  const Tensor rows{.data = nullptr, .dtype = DType::f32, .shape = {args.slots.tokens.shape.elements(), width}};
  const Floats routed = experts_magnitudes(experts_of(args, rows)), shared = linear_magnitudes(shared_of(args));
  const double adding = static_cast<double>(top_k + 3) * 0x1p-23;
  const double routed_tolerance = linear_tolerance(args.precision, args.experts.front().cols) + adding;
  const double shared_tolerance = linear_tolerance(args.precision, args.shared.cols) + adding;
  const double slack = static_cast<double>(args.shared.cols + top_k * args.experts.front().cols) * 0x1p-120;
  std::vector<double> bounds;
  for (std::int64_t i = 0; i < args.y.shape.elements(); ++i) {
    double bound = shared_tolerance * shared[static_cast<std::size_t>(i)] + slack;
    for (std::int64_t k = 0; k < top_k; ++k) {
      const std::int64_t choice = i / width * top_k + k;
      bound += std::fabs(static_cast<double>(args.weights.f32()[choice])) * routed_tolerance *
               routed[static_cast<std::size_t>(args.slot_of.i32()[choice] * width + i % width)];
    }
    bounds.push_back(bound);
  }
  return bounds;
}

struct GatedLinearCase {
  OwnedWeight gate, up;
  OwnedTensor x;  // [tokens, in]
  OwnedTensor y;  // [tokens, out]

  GatedLinearCase(QuantFormat format, std::int64_t tokens, std::int64_t out, std::int64_t in, Random& random, std::int64_t first_row = 0)
      : gate(format, out, in, random, first_row),
        up(format, out, in, random, first_row),
        x({tokens, in}, random.floats(tokens * in)),
        y(DType::f32, {tokens, out}) {}
  GatedLinearArgs args(Precision precision) const { return {.x = *x, .gate = *gate, .up = *up, .y = *y, .precision = precision}; }
};

struct GatedExpertsCase {
  ExpertsCase gate;  // with x, y and the slots
  std::vector<OwnedWeight> up_owners;
  std::vector<Weight> up;

  GatedExpertsCase(QuantFormat format, std::int64_t experts, std::int64_t tokens, std::int64_t top_k, std::int64_t out, std::int64_t in,
                   const ExpertsCase::Choose& choose, Random& random)
      : gate(format, experts, tokens, top_k, out, in, LinearExpertsArgs::Rows::by_token, choose, random),
        up_owners(ExpertsCase::some_weights(format, experts, out, in, random)),
        up(ExpertsCase::views(up_owners)) {}
  GatedExpertsArgs args(Precision precision) const {
    const LinearExpertsArgs one = gate.args(precision);
    return {.x = one.x, .gate = one.experts, .up = up, .slots = one.slots, .y = one.y, .precision = precision};
  }
};

struct ExpertsCombineCase {
  ExpertsCase experts;  // by slot; its y is not used
  OwnedWeight shared;
  OwnedTensor shared_x, weights, slot_of, y;

  // `choose` gives a token experts that are all different.
  ExpertsCombineCase(QuantFormat format, std::int64_t expert_count, std::int64_t tokens, std::int64_t top_k, std::int64_t out,
                     std::int64_t in, QuantFormat shared_format, std::int64_t shared_in, const ExpertsCase::Choose& choose, Random& random)
      : experts(format, expert_count, tokens, top_k, out, in, LinearExpertsArgs::Rows::by_slot, choose, random),
        shared(shared_format, out, shared_in, random),
        shared_x({tokens, shared_in}, random.floats(tokens * shared_in)),
        weights({tokens, top_k}, random.floats(tokens * top_k)),
        slot_of({tokens, top_k}, slots_of(experts, tokens, top_k, choose)),
        y(DType::f32, {tokens, out}) {}
  ExpertsCombineArgs args(Precision precision) const {
    const LinearExpertsArgs routed = experts.args(precision);
    return {.x = routed.x,
            .experts = routed.experts,
            .slots = routed.slots,
            .weights = *weights,
            .slot_of = *slot_of,
            .shared_x = *shared_x,
            .shared = *shared,
            .y = *y,
            .precision = precision};
  }

  static std::vector<std::int32_t> slots_of(const ExpertsCase& c, std::int64_t tokens, std::int64_t top_k,
                                            const ExpertsCase::Choose& choose) {
    std::vector<std::int32_t> slots;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t rank = 0; rank < top_k; ++rank) {
        std::int32_t slot = c.begin[static_cast<std::size_t>(choose(token, rank))];
        while (c.tokens_of_slots[static_cast<std::size_t>(slot)] != token) ++slot;
        slots.push_back(slot);
      }
    }
    return slots;
  }
};

}  // namespace reckoner::admission
