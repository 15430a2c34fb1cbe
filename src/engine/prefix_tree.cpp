#include "engine/prefix_tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace reckoner {

PrefixTree::PrefixTree(KvPool& pool) : pool_(pool), nodes_(static_cast<std::size_t>(pool.pages()) + 1) {}

std::int32_t PrefixTree::find(std::int32_t parent, std::span<const std::int32_t> tokens) const {
  PageTokens key;
  std::copy_n(tokens.begin(), kPageTokens, key.begin());
  const auto found = node(parent).children.find(key);
  return found == node(parent).children.end() ? kNone : found->second;
}

std::int32_t PrefixTree::enter(std::int32_t parent, std::span<const std::int32_t> tokens) {
  const std::int32_t page = find(parent, tokens);
  if (page == kNone) return kNone;
  if (unheld(page)) {
    --evictable_;
    leaves_.erase(order(page));
  }
  pool_.retain(page);
  return page;
}

void PrefixTree::add(std::int32_t parent, std::span<const std::int32_t> tokens, std::int32_t page) {
  Node& added = node(page);
  CHECK(added.parent == kNone && (parent == kRoot || contains(parent)));
  CHECK(!unheld(parent), "who adds a page holds those above it");
  std::copy_n(tokens.begin(), kPageTokens, added.tokens.begin());
  added.parent = parent;
  const bool is_new = node(parent).children.emplace(added.tokens, page).second;
  CHECK(is_new, "one page for the same tokens");
  pool_.retain(page);
  ++pages_;
}

void PrefixTree::leave(std::span<const std::int32_t> path) {
  // From the end, so that a page is never older than those below it.
  for (auto page = path.rbegin(); page != path.rend(); ++page) {
    pool_.release(*page);
    if (!unheld(*page)) continue;
    Node& left = node(*page);
    left.last_used = ++clock_;
    ++evictable_;
    if (left.children.empty()) leaves_.insert(order(*page));
  }
}

void PrefixTree::take_out(std::int32_t page) {
  Node& out = node(page);
  const std::int32_t parent = out.parent;
  if (unheld(page)) {
    --evictable_;
    leaves_.erase(order(page));
  }
  node(parent).children.erase(out.tokens);
  if (unheld(parent) && node(parent).children.empty()) leaves_.insert(order(parent));
  out.parent = kNone;
  out.children.clear();
  --pages_;
  pool_.release(page);
}

void PrefixTree::evict() {
  CHECK(!leaves_.empty());
  take_out(leaves_.begin()->second);
}

void PrefixTree::drop(std::int32_t page) {
  // Parents before children here, so that taking out from the end meets leaves only. No recursion: a branch can be long.
  std::vector<std::int32_t> found = {page};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& [tokens, child] : node(found[i]).children) found.push_back(child);
  }
  for (auto each = found.rbegin(); each != found.rend(); ++each) take_out(*each);
}

void PrefixTree::clear() {
  Node& root = node(kRoot);
  while (!root.children.empty()) drop(root.children.begin()->second);
}

Status PrefixTree::check_invariants() const {
  std::int64_t pages = 0;
  std::int64_t evictable = 0;
  std::size_t leaves = 0;
  for (std::int32_t page = 0; page < pool_.pages(); ++page) {
    const Node& at = node(page);
    if (!contains(page)) {
      if (!at.children.empty()) return Error{fmt::format("page {} is not in the tree but has children", page)};
      continue;
    }
    ++pages;
    if (pool_.references(page) < 1) return Error{fmt::format("page {} of the tree is free", page)};
    if (at.parent != kRoot && !contains(at.parent)) return Error{fmt::format("the parent of page {} is not in the tree", page)};
    const auto entry = node(at.parent).children.find(at.tokens);
    if (entry == node(at.parent).children.end() || entry->second != page)
      return Error{fmt::format("page {} is not among its parent's children", page)};
    for (const auto& [tokens, child] : at.children) {
      if (node(child).parent != page || node(child).tokens != tokens) return Error{fmt::format("page {} has a wrong child", page)};
      if (!unheld(page)) continue;
      if (!unheld(child)) return Error{fmt::format("page {} is held but the page above it is not", child)};
      if (node(child).last_used > at.last_used) return Error{fmt::format("page {} is older than the one below it", page)};
    }
    if (!unheld(page)) continue;
    ++evictable;
    if (!at.children.empty()) continue;
    ++leaves;
    if (!leaves_.contains(order(page))) return Error{fmt::format("the unheld leaf {} cannot be evicted", page)};
  }
  if (pages != pages_) return Error{fmt::format("the tree counts {} pages and has {}", pages_, pages)};
  if (evictable != evictable_) return Error{fmt::format("the tree counts {} evictable pages and has {}", evictable_, evictable)};
  if (leaves != leaves_.size()) return Error{fmt::format("the tree lists {} unheld leaves and has {}", leaves_.size(), leaves)};
  return {};
}

}  // namespace reckoner
