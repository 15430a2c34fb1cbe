// What a rank has of something that ranks divide among themselves.
#pragma once

#include <cstdint>

namespace reckoner {

// One of several ranks that run a model together.
struct Rank {
  int index = 0;
  int count = 1;
};

// How ranks divide a published tensor. What a matrix's rows or columns stand for decides where it may be cut.
enum class Split : std::uint8_t {
  whole,         // each rank has all of it
  rows,          // evenly; what follows works on each rank's part
  columns,       // evenly, between blocks of the format; what comes out is a part of a sum
  heads,         // rows, by attention heads
  head_columns,  // columns, by attention heads, between blocks of the format; a part of a sum
  key_heads,     // rows, by heads of keys and values; where there are fewer of these than ranks, several ranks have the same one
  vocabulary,    // rows, as evenly as they can be
};

// Some of the rows, columns or heads that there are.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Range&) const = default;
};

// Parts that differ by one at most.
inline Range nearly_even_part(std::int64_t total, Rank rank) {
  const std::int64_t first = total * rank.index / rank.count;
  return {first, total * (rank.index + 1) / rank.count - first};
}

// Heads of keys and values: a part of them, or one that several ranks share. `total` divides the number of ranks, or is divided by it.
inline Range key_heads_part(std::int64_t total, Rank rank) {
  if (total >= rank.count) return {total / rank.count * rank.index, total / rank.count};
  return {rank.index / (rank.count / total), 1};
}

}  // namespace reckoner
