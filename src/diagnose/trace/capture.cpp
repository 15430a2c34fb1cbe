#include "diagnose/trace/capture.h"

#include <algorithm>

namespace reckoner::trace {

std::vector<std::vector<std::int32_t>> page_tables(const TokenPlaces& places, HostReader& reader) {
  const std::int64_t tokens = places.positions.dim(0);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
  reader.read(reinterpret_cast<std::byte*>(positions.data()), places.positions.data, tokens * 4);
  std::vector<std::vector<std::int32_t>> tables;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t count = positions[static_cast<std::size_t>(t)] / kPageTokens + 1;
    std::vector<std::int32_t>& table = tables.emplace_back(static_cast<std::size_t>(count));
    if (places.pages.empty()) {
      reader.read(reinterpret_cast<std::byte*>(table.data()), places.table.rows(t, 1).data, count * 4);
    } else {
      std::copy_n(places.pages[static_cast<std::size_t>(t)], count, table.begin());
    }
  }
  return tables;
}

void Capture::copy(Tensor& tensor) {
  if (tensor.empty()) return;
  std::byte*& here = copies_[{tensor.data, tensor.bytes()}];
  if (here == nullptr) {
    memory_.buffers.emplace_back(std::max<std::int64_t>(tensor.bytes(), 1));
    memory_.bytes += tensor.bytes();
    here = memory_.buffers.back().data();
    reader_.read(here, tensor.data, tensor.bytes());
  }
  tensor.data = here;
}

void Capture::weights(const char*, std::span<const Weight>& weights) {
  std::vector<Weight>& experts = memory_.experts.emplace_back();
  for (const Weight& weight : weights) experts.push_back(host_weight_(weight));
  weights = experts;
}

void Capture::places(TokenPlaces& places) {
  memory_.tables = page_tables(places, reader_);
  std::map<std::int32_t, std::int32_t> numbers;  // of the pages, in the copies
  for (std::vector<std::int32_t>& table : memory_.tables) {
    for (std::int32_t& page : table) {
      const auto [known, added] = numbers.emplace(page, static_cast<std::int32_t>(used_pages_.size()));
      if (added) used_pages_.push_back(page);
      page = known->second;
    }
    memory_.pages.push_back(table.data());
  }
  copy(places.positions);
  places.pages = memory_.pages;
  places.table = {};
}

// Of each page only the rows of this kind.
void Capture::copy(CacheView& cache) {
  const std::int64_t rows_bytes = kPageTokens * cache.row_bytes();
  const auto pages = static_cast<std::int64_t>(used_pages_.size());
  memory_.buffers.emplace_back(std::max<std::int64_t>(pages * rows_bytes, 1));
  memory_.bytes += pages * rows_bytes;
  std::byte* const here = memory_.buffers.back().data();
  for (std::int64_t i = 0; i < pages; ++i) {
    reader_.read(here + i * rows_bytes, cache.base + used_pages_[static_cast<std::size_t>(i)] * cache.page_bytes + cache.offset_bytes,
                 rows_bytes);
  }
  cache.base = here;
  cache.offset_bytes = 0;
  cache.page_bytes = rows_bytes;
}

}  // namespace reckoner::trace
