#include "engine/kv_pool.h"

namespace reckoner {

KvPool::KvPool(const KvLayout& layout, std::int64_t pages) : layout_(layout), memory_(layout.page_bytes * pages), pages_(pages) {
  place_at(layout_, memory_.data());
  for (std::int64_t page = pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

std::optional<std::vector<std::int32_t>> KvPool::allocate(std::int64_t count) {
  if (count > free_pages()) return std::nullopt;
  std::vector<std::int32_t> pages(free_.end() - count, free_.end());
  free_.resize(free_.size() - static_cast<std::size_t>(count));
  return std::vector(pages.rbegin(), pages.rend());
}

void KvPool::release(const std::vector<std::int32_t>& pages) { free_.insert(free_.end(), pages.rbegin(), pages.rend()); }

}  // namespace reckoner
