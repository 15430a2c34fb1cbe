#include "ops/store.h"

#include <cmath>
#include <vector>

namespace reckoner {
namespace {

Status check_places(std::string_view op, const TokenPlaces& places, std::int64_t tokens) {
  return expect_tensor(op, "places.positions", places.positions, DType::i32, {tokens});
}

}  // namespace

Status check(const StoreLatentArgs& args) {
  constexpr std::string_view op = StoreLatentArgs::kName;
  TRY(expect_that(args.kv.shape.rank() == 2 && args.cosine.shape.rank() == 2, op, "kv must be [tokens, latent + rope]"));
  const std::int64_t tokens = args.kv.dim(0);
  const std::int64_t pairs = args.cosine.dim(1);
  TRY(expect_tensor(op, "kv", args.kv, DType::f32, args.kv.shape));
  TRY(expect_tensor(op, "weight", args.weight, DType::f32, {args.kv.dim(1) - 2 * pairs}));
  TRY(expect_tensor(op, "cosine", args.cosine, DType::f32, {tokens, pairs}));
  TRY(expect_tensor(op, "sine", args.sine, DType::f32, {tokens, pairs}));
  TRY(expect_cache(op, args.cache, args.kv.dim(1), "a cache row must hold latent + rope elements"));
  return check_places(op, args.places, tokens);
}

Cost cost(const StoreLatentArgs& args) {
  return {.bytes = static_cast<double>(args.kv.bytes() + args.kv.dim(0) * args.cache.row_bytes()),
          .multiply_adds = 2.0 * static_cast<double>(args.kv.shape.elements())};
}

void reference(const StoreLatentArgs& args) {
  const std::int64_t width = args.kv.dim(1);
  const std::int64_t latent = args.weight.dim(0);
  const std::int64_t pairs = args.cosine.dim(1);
  std::vector<float> row(static_cast<std::size_t>(width));
  for (std::int64_t token = 0; token < args.kv.dim(0); ++token) {
    const float* kv = args.kv.f32() + token * width;
    double sum = 0;
    for (std::int64_t i = 0; i < latent; ++i) sum += static_cast<double>(kv[i]) * kv[i];
    const float inverse = 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(latent)) + args.epsilon);
    for (std::int64_t i = 0; i < width; ++i) row[static_cast<std::size_t>(i)] = i < latent ? kv[i] * inverse * args.weight.f32()[i] : kv[i];
    rotate(row.data() + latent, args.cosine.f32() + token * pairs, args.sine.f32() + token * pairs, pairs, args.layout);
    std::byte* at = args.cache.row(args.places.pages[static_cast<std::size_t>(token)], args.places.positions.i32()[token]);
    write_row(args.cache, at, row.data());
  }
}

Status check(const StoreIndexKeyArgs& args) {
  constexpr std::string_view op = StoreIndexKeyArgs::kName;
  TRY(expect_that(args.k.shape.rank() == 2 && args.cosine.shape.rank() == 2, op, "k must be [tokens, index_dim]"));
  const std::int64_t tokens = args.k.dim(0);
  const std::int64_t width = args.k.dim(1);
  TRY(expect_that(2 * args.cosine.dim(1) <= width, op, "the rotated part must lie inside the key"));
  TRY(expect_tensor(op, "k", args.k, DType::f32, args.k.shape));
  TRY(expect_tensor(op, "weight", args.weight, DType::f32, {width}));
  TRY(expect_tensor(op, "bias", args.bias, DType::f32, {width}));
  TRY(expect_tensor(op, "cosine", args.cosine, DType::f32, {tokens, args.cosine.dim(1)}));
  TRY(expect_tensor(op, "sine", args.sine, DType::f32, args.cosine.shape));
  TRY(expect_cache(op, args.cache, width, "a cache row must hold index_dim elements"));
  return check_places(op, args.places, tokens);
}

Cost cost(const StoreIndexKeyArgs& args) {
  return {.bytes = static_cast<double>(args.k.bytes() + args.k.dim(0) * args.cache.row_bytes()),
          .multiply_adds = 3.0 * static_cast<double>(args.k.shape.elements())};
}

void reference(const StoreIndexKeyArgs& args) {
  const std::int64_t width = args.k.dim(1);
  const std::int64_t pairs = args.cosine.dim(1);
  std::vector<float> row(static_cast<std::size_t>(width));
  for (std::int64_t token = 0; token < args.k.dim(0); ++token) {
    const float* k = args.k.f32() + token * width;
    double mean = 0;
    for (std::int64_t i = 0; i < width; ++i) mean += k[i] / static_cast<double>(width);
    double variance = 0;
    for (std::int64_t i = 0; i < width; ++i) variance += (k[i] - mean) * (k[i] - mean) / static_cast<double>(width);
    const double inverse = 1.0 / std::sqrt(variance + args.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      row[static_cast<std::size_t>(i)] = static_cast<float>((k[i] - mean) * inverse) * args.weight.f32()[i] + args.bias.f32()[i];
    }
    rotate(row.data(), args.cosine.f32() + token * pairs, args.sine.f32() + token * pairs, pairs, args.layout);
    std::byte* at = args.cache.row(args.places.pages[static_cast<std::size_t>(token)], args.places.positions.i32()[token]);
    write_row(args.cache, at, row.data());
  }
}

Status check(const StoreRowsArgs& args) {
  constexpr std::string_view op = StoreRowsArgs::kName;
  TRY(expect_that(args.x.shape.rank() == 2, op, "x must be [tokens, width]"));
  TRY(expect_tensor(op, "x", args.x, DType::f32, args.x.shape));
  TRY(expect_cache(op, args.cache, args.x.dim(1), "a cache row must be as wide as x"));
  return check_places(op, args.places, args.x.dim(0));
}

Cost cost(const StoreRowsArgs& args) {
  return {.bytes = static_cast<double>(args.x.bytes() + args.x.dim(0) * args.cache.row_bytes()), .multiply_adds = 0};
}

void reference(const StoreRowsArgs& args) {
  for (std::int64_t token = 0; token < args.x.dim(0); ++token) {
    std::byte* at = args.cache.row(args.places.pages[static_cast<std::size_t>(token)], args.places.positions.i32()[token]);
    write_row(args.cache, at, args.x.f32() + token * args.x.dim(1));
  }
}

}  // namespace reckoner
