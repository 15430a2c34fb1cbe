#include "engine/kv_pool.h"

namespace reckoner {

KvPool::KvPool(const KvLayout& layout, std::int64_t pages, DeviceMemory* memory)
    : layout_(layout), memory_(layout.page_bytes * pages, memory), references_(static_cast<std::size_t>(pages), 0) {
  place_at(layout_, memory_.data());
  for (std::int64_t page = pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

std::optional<std::vector<std::int32_t>> KvPool::allocate(std::int64_t count) {
  if (count > free_pages()) return std::nullopt;
  std::vector<std::int32_t> pages(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<std::size_t>(count));
  for (const std::int32_t page : pages) references_[static_cast<std::size_t>(page)] = 1;
  return pages;
}

void KvPool::retain(std::int32_t page) {
  CHECK(references(page) > 0, "a free page has no holder to share it with");
  ++references_[static_cast<std::size_t>(page)];
}

void KvPool::release(std::int32_t page) {
  CHECK(references(page) > 0, "a page was released twice");
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace reckoner
