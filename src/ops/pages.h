// How a cache lies in memory: pages of kPageTokens tokens; a page holds the rows of every layer for its tokens, at a fixed place each.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"
#include "tensor/tensor.h"

namespace reckoner {

inline constexpr std::int64_t kPageTokens = 64;
// Elements that share a scale in a quantised row.
inline constexpr std::int64_t kCacheBlock = 128;

// One kind of row (the latent of a layer, say) in a pool of pages.
//
// A row of f32 or bf16 holds its elements one after the other. A row of f8_e4m3 holds
//   the first quantised_elements as E4M3 codes, in blocks of kCacheBlock (the last may be shorter)
//   from the next multiple of 4 bytes on: an f32 scale for each block; an element is its code's value times its block's scale
//   the other elements as BF16
// so an MLA row of 512 + 64 elements takes 512 + 4 * 4 + 64 * 2 = 656 bytes: the layout that DeepSeek publishes.
struct CacheView {
  std::byte* base = nullptr;      // of the pool
  std::int64_t page_bytes = 0;    // of a whole page
  std::int64_t offset_bytes = 0;  // of this kind of row in its page
  std::int64_t row_elements = 0;
  DType dtype = DType::f32;             // f32, bf16 or f8_e4m3
  std::int64_t quantised_elements = 0;  // read with f8_e4m3 only

  // Elements that are kept as codes, and where in a row their scales and the other elements begin (0 without codes).
  std::int64_t quantised() const { return dtype == DType::f8_e4m3 ? quantised_elements : 0; }
  std::int64_t scales_offset_bytes() const { return (quantised() + 3) / 4 * 4; }
  std::int64_t plain_offset_bytes() const { return scales_offset_bytes() + (quantised() + kCacheBlock - 1) / kCacheBlock * 4; }
  std::int64_t row_bytes() const {
    if (dtype != DType::f8_e4m3) return row_elements * size_bytes(dtype);
    return (plain_offset_bytes() + 2 * (row_elements - quantised_elements) + 3) / 4 * 4;
  }
  // The row of `position` of a sequence with these pages.
  std::byte* row(const std::int32_t* pages, std::int64_t position) const {
    return base + pages[position / kPageTokens] * page_bytes + offset_bytes + position % kPageTokens * row_bytes();
  }
};

// Where the tokens of a step stand. Each member has one entry a token.
struct TokenPlaces {
  Tensor positions;                                 // [tokens] i32: position in its sequence
  std::span<const std::int32_t* const> pages = {};  // the page table of its sequence
  Tensor table = {};  // [tokens, pages a sequence] i32: the same page tables, for devices that cannot follow `pages`; empty on the CPU
};

// Ok if the cache holds rows of `width` elements in a way that we know; `what` says so where they are of another width.
Status expect_cache(std::string_view op, const CacheView& cache, std::int64_t width, std::string_view what);

// Reads elements [first, first + count) of a cache row as float (scalar).
void read_row(const CacheView& cache, const std::byte* row, std::int64_t first, std::int64_t count, float* out);

// Writes a whole row (scalar), rounding to nearest even. The scale of a block is the largest magnitude in it / 448, so that this becomes
// the largest code; 1 where that is zero. In a block, a number that is not finite is stored as NaN and leaves the scale to the others:
// whoever reads the row must see that it is bad.
void write_row(const CacheView& cache, std::byte* row, const float* values);

}  // namespace reckoner
