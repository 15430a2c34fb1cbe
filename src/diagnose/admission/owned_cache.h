// Caches for cases: several sequences whose pages lie scattered over one pool, between bytes that belong to somebody else.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>

#include "diagnose/admission/owned.h"
#include "ops/pages.h"

namespace reckoner::admission {

class OwnedCache {
 public:
  // Room for sequences of the given contexts, filled with random rows. `quantised`: how many elements f8_e4m3 quantises.
  OwnedCache(DType dtype, std::int64_t width, std::int64_t quantised, const std::vector<std::int64_t>& contexts, Random& random)
      : OwnedCache(dtype, width, quantised, hand_out_pages(contexts, random), random) {}
  // For the same sequences, with the same page tables.
  OwnedCache(DType dtype, std::int64_t width, std::int64_t quantised, const OwnedCache& other, Random& random)
      : OwnedCache(dtype, width, quantised, other.tables_, random) {}

  const CacheView& operator*() const { return view_; }
  const std::int32_t* pages(std::int64_t sequence) const { return tables_[static_cast<std::size_t>(sequence)].data(); }
  std::vector<float> row(std::int64_t sequence, std::int64_t position) const {
    std::vector<float> values(static_cast<std::size_t>(view_.row_elements));
    read_row(view_, view_.row(pages(sequence), position), 0, view_.row_elements, values.data());
    return values;
  }
  void set_row(std::int64_t sequence, std::int64_t position, const std::vector<float>& values) const {
    write_row(view_, view_.row(pages(sequence), position), values.data());
  }
  // Byte for byte: writing what was read may round it once more.
  void copy_row(const OwnedCache& from, std::int64_t sequence, std::int64_t position) const {
    std::memcpy(view_.row(pages(sequence), position), from.view_.row(from.pages(sequence), position),
                static_cast<std::size_t>(view_.row_bytes()));
  }
  std::vector<std::byte> bytes() const { return {bytes_.get(), bytes_.get() + size_}; }
  void set_bytes(const std::vector<std::byte>& bytes) const { std::memcpy(bytes_.get(), bytes.data(), bytes.size()); }

 private:
  using PageTables = std::vector<std::vector<std::int32_t>>;  // of each sequence

  OwnedCache(DType dtype, std::int64_t width, std::int64_t quantised, const PageTables& tables, Random& random) : tables_(tables) {
    std::int64_t pages = 0;
    for (const std::vector<std::int32_t>& table : tables_) pages += std::ssize(table);
    view_ = {.offset_bytes = 64, .row_elements = width, .dtype = dtype, .quantised_elements = quantised};
    view_.page_bytes = view_.offset_bytes + kPageTokens * view_.row_bytes();
    size_ = pages * view_.page_bytes;
    // Exactly as large as needed, and rows end with the page: AddressSanitizer sees whoever reads beyond the last row.
    bytes_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(size_));
    std::memset(bytes_.get(), 0x5a, static_cast<std::size_t>(size_));
    view_.base = bytes_.get();
    for (const std::vector<std::int32_t>& table : tables_) {
      for (std::int64_t position = 0; position < std::ssize(table) * kPageTokens; ++position) {
        write_row(view_, view_.row(table.data(), position), some_row(width, random).data());
      }
    }
  }

  // Now and then much smaller elements: a block of its own scale, and small codes within a block.
  static std::vector<float> some_row(std::int64_t width, Random& random) {
    std::vector<float> row = random.floats(width);
    const std::int64_t every = 2 + random.below(7);
    for (std::int64_t i = 0; i < width; i += every) row[static_cast<std::size_t>(i)] *= 0x1p-9f;
    for (std::int64_t i = 0; i < std::min(width, kCacheBlock); ++i) row[static_cast<std::size_t>(i)] *= every == 2 ? 0x1p-3f : 1.0f;
    return row;
  }

  // In random order.
  static PageTables hand_out_pages(const std::vector<std::int64_t>& contexts, Random& random) {
    const auto pages_of = [](std::int64_t context) { return (context + kPageTokens - 1) / kPageTokens; };
    std::int64_t pages = 0;
    for (const std::int64_t context : contexts) pages += pages_of(context);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pages));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::int64_t i = pages - 1; i > 0; --i) {
      std::swap(ids[static_cast<std::size_t>(i)], ids[static_cast<std::size_t>(random.below(i + 1))]);
    }
    PageTables tables;
    auto next = ids.begin();
    for (const std::int64_t context : contexts) {
      tables.emplace_back(next, next + pages_of(context));
      next += pages_of(context);
    }
    return tables;
  }

  CacheView view_;
  std::int64_t size_ = 0;
  std::unique_ptr<std::byte[]> bytes_;
  PageTables tables_;
};

inline const std::vector<DType> kCacheDTypes = {DType::f32, DType::bf16, DType::f8_e4m3};

// Where one token of a case stands.
struct TokenCase {
  std::int64_t sequence = 0;
  std::int64_t position = 0;
};

// The places of tokens, with their memory.
class OwnedPlaces {
 public:
  OwnedPlaces(const std::vector<TokenCase>& tokens, const OwnedCache& cache) : positions_(DType::i32, {std::ssize(tokens)}) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      positions_->i32()[i] = static_cast<std::int32_t>(tokens[i].position);
      pages_.push_back(cache.pages(tokens[i].sequence));
    }
  }
  TokenPlaces operator*() const { return {.positions = *positions_, .pages = pages_}; }
  // Of tokens [first, first + count).
  TokenPlaces rows(std::int64_t first, std::int64_t count) const {
    return {.positions = positions_->rows(first, count),
            .pages = std::span(pages_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))};
  }

 private:
  OwnedTensor positions_;
  std::vector<const std::int32_t*> pages_;
};

}  // namespace reckoner::admission
