// KvPool: the memory of the cache, in pages that are handed out, counted and taken back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/kv_layout.h"

namespace reckoner {

class KvPool {
 public:
  // In the device's memory; nullptr: in the host's, where memory that no page has used yet is not resident.
  KvPool(const KvLayout& layout, std::int64_t pages, DeviceMemory* memory = nullptr);

  // The layout, placed in this pool.
  const KvLayout& layout() const { return layout_; }
  std::int64_t pages() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  std::span<const std::int32_t> free_list() const { return free_; }
  // Holders of a page; 0: it is free.
  std::int32_t references(std::int32_t page) const { return references_[static_cast<std::size_t>(page)]; }

  // `count` pages with one holder each, or nothing if there are fewer.
  std::optional<std::vector<std::int32_t>> allocate(std::int64_t count);
  // One holder more of a page that has one.
  void retain(std::int32_t page);
  // One holder less; without any the page is free.
  void release(std::int32_t page);

  static std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

 private:
  KvLayout layout_;
  Buffer memory_;
  std::vector<std::int32_t> references_;  // of each page
  std::vector<std::int32_t> free_;        // the next one to hand out is the last
};

}  // namespace reckoner
