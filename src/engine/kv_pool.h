// KvPool: the memory of the cache, in pages that are handed out and taken back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/kv_layout.h"

namespace reckoner {

class KvPool {
 public:
  // Memory that no page has used yet is not resident.
  KvPool(const KvLayout& layout, std::int64_t pages);

  // The layout, placed in this pool.
  const KvLayout& layout() const { return layout_; }
  std::int64_t pages() const { return pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  // `count` pages, or nothing if there are fewer.
  std::optional<std::vector<std::int32_t>> allocate(std::int64_t count);
  void release(const std::vector<std::int32_t>& pages);

  static std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

 private:
  KvLayout layout_;
  Buffer memory_;
  std::int64_t pages_;
  std::vector<std::int32_t> free_;  // the next one to hand out is the last
};

}  // namespace reckoner
