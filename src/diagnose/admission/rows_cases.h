// Cases of the ops on rows, and of what is written into caches.
#pragma once

#include "diagnose/admission/owned_cache.h"
#include "ops/rms_norm.h"
#include "ops/route.h"
#include "ops/store.h"

namespace reckoner::admission {

inline void put(const OwnedTensor& tensor, const std::vector<float>& values) { std::copy(values.begin(), values.end(), tensor->f32()); }
inline void clear(const OwnedTensor& tensor) { std::memset(tensor->data, 0x7f, static_cast<std::size_t>(tensor->bytes())); }

struct Angles {
  OwnedTensor cosine, sine;  // [tokens, pairs]
  Angles(std::int64_t tokens, std::int64_t pairs, Random& random) : cosine(DType::f32, {tokens, pairs}), sine(DType::f32, {tokens, pairs}) {
    for (std::int64_t i = 0; i < tokens * pairs; ++i) {
      const double angle = 3 * random.uniform();
      cosine->f32()[i] = static_cast<float>(std::cos(angle));
      sine->f32()[i] = static_cast<float>(std::sin(angle));
    }
  }
};

struct NormCase {
  OwnedTensor x, add, weight, y, first_bad, rms;
  std::vector<float> x_before;
  bool adds;

  NormCase(std::int64_t tokens, std::int64_t width, bool adds_, Random& random)
      : x({tokens, width}, random.floats(tokens * width)),
        add({tokens, width}, random.floats(tokens * width)),
        weight({width}, random.floats(width)),
        y(DType::f32, {tokens, width}),
        first_bad(DType::i32, {tokens}),
        rms(DType::f32, {tokens}),
        x_before(values_of(*x)),
        adds(adds_) {}
  RmsNormArgs args() const {
    return {.x = *x,
            .add = adds ? *add : Tensor{},
            .weight = *weight,
            .epsilon = 1e-5f,
            .y = *y,
            .guard = {.first_bad = *first_bad, .rms = *rms, .place = 5}};
  }
  void reset() const {
    put(x, x_before);
    clear(y);
    clear(rms);
    std::fill_n(first_bad->i32(), first_bad->shape.elements(), Guard::kClean);
  }
  std::vector<std::int32_t> bad() const { return {first_bad->i32(), first_bad->i32() + first_bad->shape.elements()}; }
};

struct RouteCase {
  OwnedTensor logits, bias, weights, slot_of, begin, tokens;
  std::int64_t groups, top_groups;
  RouteArgs::Weights normalise;

  RouteCase(std::int64_t rows, std::int64_t experts, std::int64_t top_k, std::int64_t groups_, std::int64_t top_groups_, Random& random)
      : logits({rows, experts}, random.floats(rows * experts)),
        bias({experts}, random.floats(experts)),
        weights(DType::f32, {rows, top_k}),
        slot_of(DType::i32, {rows, top_k}),
        begin(DType::i32, {experts + 1}),
        tokens(DType::i32, {rows * top_k}),
        groups(groups_),
        top_groups(top_groups_),
        normalise(random.below(2) == 0 ? RouteArgs::Weights::normalised : RouteArgs::Weights::as_they_are) {}
  RouteArgs args() const {
    return {.logits = *logits,
            .bias = *bias,
            .groups = groups,
            .top_groups = top_groups,
            .normalise = normalise,
            .scale = 2.5f,
            .weights = *weights,
            .slot_of = *slot_of,
            .slots = {.begin = *begin, .tokens = *tokens}};
  }
  std::vector<Tensor> outputs() const { return {*weights, *slot_of, *begin, *tokens}; }
  void reset() const {
    for (const OwnedTensor* tensor : {&weights, &slot_of, &begin, &tokens}) clear(*tensor);
  }
};

// Tokens of a few sequences, each with a place of its own.
inline std::vector<TokenCase> distinct_places(std::int64_t tokens, Random& random) {
  std::vector<TokenCase> places;
  for (std::int64_t i = 0; i < tokens; ++i) places.push_back({i % 2, i / 2 * 3 + random.below(3)});
  return places;
}

// What storing may turn a small difference of an element into, at most: the distance of neighbours in the cache.
inline double step_at(const CacheView& cache, const std::vector<float>& row, std::int64_t element) {
  const double magnitude = std::fabs(row[static_cast<std::size_t>(element)]);
  if (cache.dtype == DType::f32) return 0;
  if (element >= cache.quantised()) return 0x1p-7 * magnitude;
  double largest = 0;
  const std::int64_t first = element / kCacheBlock * kCacheBlock;
  for (std::int64_t i = first; i < std::min(first + kCacheBlock, cache.quantised()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(row[static_cast<std::size_t>(i)])));
  }
  // 3 bits of mantissa; the smallest codes are 2^-9 apart. The scale differs a little as well, by less than the largest element does.
  return std::max(0x1p-3 * magnitude, 0x1p-9 * largest / 448);
}

}  // namespace reckoner::admission
