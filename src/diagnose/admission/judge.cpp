#include "diagnose/admission/judge.h"

#include <fmt/format.h>

#include <algorithm>

namespace reckoner::admission {

void Judge::refuse(std::string reason) {
  if (verdict_.good()) verdict_.reason = std::move(reason);
}

const Copies::Piece& Judge::piece_of(const std::byte* host) const {
  const auto& pieces = copies_.pieces();
  const auto found = std::find_if(pieces.begin(), pieces.end(), [&](const Copies::Piece& piece) { return piece.host == host; });
  CHECK(found != pieces.end(), "an output that was not copied");
  return *found;
}

// Written so that a NaN is an error.
void Judge::compare(const char* name, std::int64_t row, double found, double expected, double allowed) {
  const double error = std::fabs(found - expected);
  if (allowed > 0 && std::isfinite(error)) verdict_.worst = std::max(verdict_.worst, error / allowed);
  if (error <= allowed || !verdict_.good()) return;
  if (!std::isfinite(found))
    return refuse(fmt::format("{} of finite inputs, {} row {}", std::isnan(found) ? "NaN" : "infinity", name, row));
  if (allowed == 0) return refuse(fmt::format("found {:.9g} where it must be {:.9g}, {} row {}", found, expected, name, row));
  refuse(fmt::format("error {:.1e} where {:.1e} is allowed, {} row {}", error, allowed, name, row));
}

void Judge::compare_bits(const char* name, const Tensor& expected, const std::byte* found) {
  if (std::memcmp(found, expected.data, static_cast<std::size_t>(expected.bytes())) == 0) return;
  const std::int64_t size = size_bytes(expected.dtype);
  const std::int64_t row_elements = expected.shape.elements() / expected.dim(0);
  for (std::int64_t i = 0; i < expected.shape.elements(); ++i) {
    if (std::memcmp(found + i * size, expected.data + i * size, static_cast<std::size_t>(size)) == 0) continue;
    const Tensor here{.data = const_cast<std::byte*>(found), .dtype = expected.dtype, .shape = expected.shape};
    const bool is_float = expected.dtype == DType::f32;
    compare(name, i / row_elements, is_float ? here.f32()[i] : here.i32()[i], is_float ? expected.f32()[i] : expected.i32()[i], 0);
    return refuse(fmt::format("{} differs in a sign of zero, row {}", name, i / row_elements));  // numbers that compare equal
  }
}

void Judge::out(const char* name, const Tensor& expected) {
  if (expected.empty()) return;
  const std::byte* const here = found(piece_of(expected.data));
  const std::vector<double> allowed = allowed_(name);
  if (allowed.empty()) return compare_bits(name, expected, here);
  CHECK(std::ssize(allowed) == expected.shape.elements(), name);
  const auto* const values = reinterpret_cast<const float*>(here);
  const std::int64_t row_elements = expected.shape.elements() / expected.dim(0);
  for (std::int64_t i = 0; i < expected.shape.elements(); ++i)
    compare(name, i / row_elements, values[i], expected.f32()[i], allowed[static_cast<std::size_t>(i)]);
}

void Judge::compare_row(const char* name, std::int64_t token, const CacheView& expected, const CacheView& found,
                        const std::vector<double>& allowed) {
  const std::int64_t width = expected.row_elements;
  const std::int32_t* const pages = places_->pages[static_cast<std::size_t>(token)];
  const std::int64_t position = places_->positions.i32()[token];
  std::vector<float> wanted(static_cast<std::size_t>(width)), here = wanted;
  read_row(expected, expected.row(pages, position), 0, width, wanted.data());
  read_row(found, found.row(pages, position), 0, width, here.data());
  for (std::int64_t i = 0; i < width; ++i) {
    const double bound = allowed.empty() ? 0 : allowed[static_cast<std::size_t>(token * width + i)];
    compare(name, token, here[static_cast<std::size_t>(i)], wanted[static_cast<std::size_t>(i)], bound);
  }
}

// The rows of the tokens, and that nothing else was written.
void Judge::cache_out(const char* name, const CacheView& expected) {
  const Copies::Piece& piece = piece_of(expected.base);
  std::vector<std::byte> pool(found(piece), found(piece) + piece.size_bytes());
  CacheView here = expected;
  here.base = pool.data();
  const std::vector<double> allowed = allowed_(name);
  for (std::int64_t token = 0; token < places_->positions.dim(0); ++token) {
    compare_row(name, token, expected, here, allowed);
    const std::int32_t* const pages = places_->pages[static_cast<std::size_t>(token)];
    const std::int64_t position = places_->positions.i32()[token];
    std::memcpy(here.row(pages, position), expected.row(pages, position), static_cast<std::size_t>(expected.row_bytes()));
  }
  if (std::memcmp(pool.data(), expected.base, pool.size()) != 0) refuse(fmt::format("wrote into rows of {} that are not its own", name));
}

void Judge::look_at_the_rest() {
  if (!arena_.untouched(bytes_)) refuse("wrote outside of its outputs");
  for (const Copies::Piece& piece : copies_.pieces()) {
    if (piece.way == Copies::Way::back) continue;
    if (std::memcmp(found(piece), piece.before.data(), piece.before.size()) != 0) refuse(fmt::format("changed its input {}", piece.name));
  }
}

}  // namespace reckoner::admission
