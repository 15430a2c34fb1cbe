// How a cache lies in memory: pages of kPageTokens tokens; a page holds the rows of every layer for its tokens, at a fixed place each.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace reckoner {

inline constexpr std::int64_t kPageTokens = 64;

// One kind of row (the latent of a layer, say) in a pool of pages.
struct CacheView {
  std::byte* base = nullptr;      // of the pool
  std::int64_t page_bytes = 0;    // of a whole page
  std::int64_t offset_bytes = 0;  // of this kind of row in its page
  std::int64_t row_elements = 0;
  DType dtype = DType::f32;  // f32 or bf16

  std::int64_t row_bytes() const { return row_elements * size_bytes(dtype); }
  // The row of `position` of a sequence with these pages.
  std::byte* row(const std::int32_t* pages, std::int64_t position) const {
    return base + pages[position / kPageTokens] * page_bytes + offset_bytes + position % kPageTokens * row_bytes();
  }
};

// Where the tokens of a step stand. Both spans have one entry a token.
struct TokenPlaces {
  Tensor positions;                            // [tokens] i32: position in its sequence
  std::span<const std::int32_t* const> pages;  // the page table of its sequence
};

// Reads or writes elements [first, first + count) of a cache row as float (scalar; bf16 is rounded to nearest even on writing).
void read_row(const CacheView& cache, const std::byte* row, std::int64_t first, std::int64_t count, float* out);
void write_row(const CacheView& cache, std::byte* row, std::int64_t first, std::int64_t count, const float* values);

}  // namespace reckoner
