// Cases of attention and of the indexer.
#pragma once

#include "diagnose/admission/owned_cache.h"
#include "ops/attend_grouped.h"
#include "ops/attend_latent.h"
#include "ops/index_select.h"

namespace reckoner::admission {

inline std::vector<TokenCase> some_tokens(const std::vector<std::int64_t>& contexts, std::int64_t count, Random& random) {
  std::vector<TokenCase> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sequence = random.below(std::ssize(contexts));
    const std::int64_t context = contexts[static_cast<std::size_t>(sequence)];
    // The last position of a sequence as often as any other.
    tokens.push_back({sequence, random.below(2) == 0 ? context - 1 : random.below(context)});
  }
  return tokens;
}

// Bound on the error of one head's y, first order with a factor 2 over all. A score is a float sum of `width` products of a query that
// was scaled first: off by (width + 3) ulp of scale * sum |q k|. Its distance to the largest score is rounded once more: so
//   d = (width + 3) ulp * max_s sum |q k| scale * 2 + ulp * (spread of the scores).
// exp adds 4 ulp. Each block of 64 keys and each piece rescales what came before, once for the sum and once for y: another exp of a
// rounded difference, at most d + 5 ulp each; the differences telescope, so d is paid once and 5 ulp per rescaling. The weights p / sum p
// are then off by 2 (d + rescalings * 5 ulp) relative, y by that times max |value|, plus keys * ulp for its own sum; and the normalised
// sum.
inline double attend_head_bound(const float* q, const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values,
                                double scale) {
  double magnitude = 0, low = 0, high = 0, largest = 0;
  for (const std::vector<float>& key : keys) {
    double sum = 0, score = 0;
    for (std::size_t i = 0; i < key.size(); ++i) {
      score += scale * q[i] * key[i];
      sum += std::fabs(scale * q[i] * key[i]);
    }
    magnitude = std::max(magnitude, sum);
    low = std::min(low, score);
    high = std::max(high, score);
  }
  for (const std::vector<float>& value : values) {
    for (const float element : value) largest = std::max(largest, std::fabs(static_cast<double>(element)));
  }
  const auto count = static_cast<double>(keys.size());
  const double width = keys.empty() ? 0 : static_cast<double>(keys.front().size());
  const double d = kUlp * (2 * (width + 3) * magnitude + (high - low));
  const double relative = 2 * (d + kUlp * (4 + 5 * (count / 64 + 16))) + 2 * count * kUlp + 4 * kUlp;
  return 2 * std::expm1(relative) * largest;
}

struct AttendCase {
  std::int64_t heads, latent, rope;
  std::vector<TokenCase> tokens;
  OwnedCache cache;
  OwnedPlaces places;
  OwnedTensor q;          // [tokens, heads, latent + rope]
  OwnedTensor y;          // [tokens, heads, latent]
  std::int64_t top_k;     // 0: attend to everything
  OwnedTensor counts;     // [tokens]
  OwnedTensor positions;  // [tokens, top_k]
  std::int64_t max_context;

  AttendCase(std::int64_t heads_, std::int64_t latent_, std::int64_t rope_, DType dtype, std::int64_t top_k_,
             const std::vector<std::int64_t>& contexts, const std::vector<TokenCase>& tokens_, Random& random)
      : heads(heads_),
        latent(latent_),
        rope(rope_),
        tokens(tokens_),
        cache(dtype, latent + rope, latent, contexts, random),
        places(tokens, cache),
        q({count(), heads, latent + rope}, random.floats(count() * heads * (latent + rope))),
        y(DType::f32, {count(), heads, latent}),
        top_k(top_k_),
        counts(DType::i32, {count()}),
        positions(DType::i32, {count(), top_k}),
        max_context(*std::max_element(contexts.begin(), contexts.end())) {
    for (std::int64_t token = 0; token < count() && top_k > 0; ++token) select_some(token, random);
  }

  std::int64_t count() const { return std::ssize(tokens); }

  // None, one, a few, or as many as there are; in ascending order.
  void select_some(std::int64_t token, Random& random) {
    const std::int64_t context = tokens[static_cast<std::size_t>(token)].position + 1;
    const std::int64_t most = std::min(context, top_k);
    const std::int64_t wanted = random.one_of<std::int64_t>({0, 1, random.below(most + 1), most, most});
    std::vector<std::int32_t> all(static_cast<std::size_t>(context));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t i = 0; i < wanted; ++i) {
      std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i + random.below(context - i))]);
    }
    std::sort(all.begin(), all.begin() + std::min(wanted, context));
    counts->i32()[token] = static_cast<std::int32_t>(std::min(wanted, context));
    std::copy_n(all.begin(), counts->i32()[token], positions->i32() + token * top_k);
  }

  // Of tokens [first, first + some).
  AttendLatentArgs args(std::int64_t first, std::int64_t some) const {
    AttendLatentArgs args{.q = q->rows(first, some),
                          .places = places.rows(first, some),
                          .cache = *cache,
                          .scale = 1.0f / std::sqrt(static_cast<float>(latent + rope)),
                          .max_context = max_context,
                          .y = y->rows(first, some)};
    if (top_k > 0) args.selection = {.counts = counts->rows(first, some), .positions = positions->rows(first, some)};
    return args;
  }
  AttendLatentArgs args() const { return args(0, count()); }

  std::vector<std::int64_t> attended(std::int64_t token) const {
    if (top_k > 0) return {positions->i32() + token * top_k, positions->i32() + token * top_k + counts->i32()[token]};
    std::vector<std::int64_t> all(static_cast<std::size_t>(tokens[static_cast<std::size_t>(token)].position + 1));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

inline double attend_bound(const AttendCase& c, std::int64_t token, std::int64_t head) {
  std::vector<std::vector<float>> rows;
  for (const std::int64_t position : c.attended(token)) {
    rows.push_back(c.cache.row(c.tokens[static_cast<std::size_t>(token)].sequence, position));
  }
  return attend_head_bound(c.q->f32() + (token * c.heads + head) * (c.latent + c.rope), rows, rows, c.args().scale);
}

struct GroupedShape {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t width() const { return kv_heads * head_dim; }
};

struct GroupedCase {
  GroupedShape shape;
  std::vector<TokenCase> tokens;
  OwnedCache keys, values;
  OwnedPlaces places;
  OwnedTensor q, y;  // [tokens, heads, head_dim]
  std::int64_t max_context;

  GroupedCase(const GroupedShape& shape_, DType key_dtype, DType value_dtype, const std::vector<std::int64_t>& contexts,
              const std::vector<TokenCase>& tokens_, Random& random)
      : shape(shape_),
        tokens(tokens_),
        keys(key_dtype, shape.width(), shape.width(), contexts, random),
        values(value_dtype, shape.width(), shape.width(), keys, random),
        places(tokens, keys),
        q({count(), shape.heads, shape.head_dim}, random.floats(count() * shape.heads * shape.head_dim)),
        y(DType::f32, q->shape),
        max_context(*std::max_element(contexts.begin(), contexts.end())) {}

  std::int64_t count() const { return std::ssize(tokens); }
  // Of tokens [first, first + some).
  AttendGroupedArgs args(std::int64_t first, std::int64_t some) const {
    return {.q = q->rows(first, some),
            .places = places.rows(first, some),
            .keys = *keys,
            .values = *values,
            .kv_heads = shape.kv_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
            .max_context = max_context,
            .y = y->rows(first, some)};
  }
  AttendGroupedArgs args() const { return args(0, count()); }
  std::int64_t kv_head_of(std::int64_t head) const { return head / (shape.heads / shape.kv_heads); }
  // What a kv head sees of a row.
  std::vector<float> part(const std::vector<float>& row, std::int64_t kv_head) const {
    return {row.begin() + kv_head * shape.head_dim, row.begin() + (kv_head + 1) * shape.head_dim};
  }
};

enum class Numbers { real, small_integers };

struct IndexCase {
  std::int64_t heads, dim, top_k;
  std::vector<TokenCase> tokens;
  OwnedCache cache;
  OwnedPlaces places;
  OwnedTensor q;          // [tokens, heads, dim]
  OwnedTensor weights;    // [tokens, heads]
  OwnedTensor counts;     // [tokens]
  OwnedTensor positions;  // [tokens, top_k]
  std::int64_t max_context;

  // With small integers every sum is exact in float, and many scores are equal.
  IndexCase(std::int64_t heads_, std::int64_t dim_, DType dtype, std::int64_t top_k_, const std::vector<std::int64_t>& contexts,
            const std::vector<TokenCase>& tokens_, Numbers numbers, Random& random)
      : heads(heads_),
        dim(dim_),
        top_k(top_k_),
        tokens(tokens_),
        cache(dtype, dim, dim, contexts, random),
        places(tokens, cache),
        q({count(), heads, dim}, random.floats(count() * heads * dim)),
        weights({count(), heads}, random.floats(count() * heads)),
        counts(DType::i32, {count()}),
        positions(DType::i32, {count(), top_k}),
        max_context(*std::max_element(contexts.begin(), contexts.end())) {
    if (numbers == Numbers::real) return;
    for (std::int64_t i = 0; i < q->shape.elements(); ++i) q->f32()[i] = integer(random, 1);
    for (std::int64_t i = 0; i < weights->shape.elements(); ++i) weights->f32()[i] = integer(random, 2);
    for (std::int64_t sequence = 0; sequence < std::ssize(contexts); ++sequence) {
      for (std::int64_t position = 0; position < contexts[static_cast<std::size_t>(sequence)]; ++position) {
        std::vector<float> row(static_cast<std::size_t>(dim));
        for (float& value : row) value = integer(random, 1);
        cache.set_row(sequence, position, row);
      }
    }
  }

  static float integer(Random& random, std::int64_t largest) { return static_cast<float>(random.below(2 * largest + 1) - largest); }
  std::int64_t count() const { return std::ssize(tokens); }

  IndexSelectArgs args(std::int64_t first, std::int64_t some) const {
    return {.q = q->rows(first, some),
            .weights = weights->rows(first, some),
            .scale = 0.125f,
            .places = places.rows(first, some),
            .keys = *cache,
            .max_context = max_context,
            .selection = {.counts = counts->rows(first, some), .positions = positions->rows(first, some)}};
  }
  IndexSelectArgs args() const { return args(0, count()); }

  static constexpr std::int32_t kUnwritten = -7;
  void reset() const {
    std::fill_n(counts->i32(), count(), kUnwritten);
    std::fill_n(positions->i32(), count() * top_k, kUnwritten);
  }
  std::vector<std::int32_t> found() const {
    std::vector<std::int32_t> all(counts->i32(), counts->i32() + count());
    all.insert(all.end(), positions->i32(), positions->i32() + count() * top_k);
    return all;
  }
};

}  // namespace reckoner::admission
