// PrefixTree: which pages hold the cache rows of which tokens, so that a prompt that begins like an earlier one need not be computed
// again. A radix tree whose edges are whole pages: a node is a page, its children continue it by kPageTokens tokens each.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/kv_pool.h"

namespace reckoner {

class PrefixTree {
 public:
  static constexpr std::int32_t kRoot = -1;  // the parent of first pages
  static constexpr std::int32_t kNone = -2;

  // The tree is one holder of each page in it; the other holders are sequences. Who holds a page holds all pages above it.
  explicit PrefixTree(KvPool& pool);

  // The page below `parent` with these kPageTokens tokens, which gets one holder more; kNone if there is none. find()
  // only looks.
  std::int32_t enter(std::int32_t parent, std::span<const std::int32_t> tokens);
  std::int32_t find(std::int32_t parent, std::span<const std::int32_t> tokens) const;
  // Puts `page`, which its sequence goes on holding, below `parent`, where no page has these tokens.
  void add(std::int32_t parent, std::span<const std::int32_t> tokens, std::int32_t page);
  // A sequence gives back the first pages of its table, from the root on. They stay in the tree, as the latest used.
  void leave(std::span<const std::int32_t> path);
  // Frees the leaf that nobody has used for the longest time; there must be an evictable page.
  void evict();
  // Takes a page and all below it out of the tree. Those that sequences hold stay theirs.
  void drop(std::int32_t page);
  void clear();

  std::int64_t pages() const { return pages_; }
  // Pages that evict() can free one after the other: those that only the tree holds.
  std::int64_t evictable_pages() const { return evictable_; }
  bool contains(std::int32_t page) const { return node(page).parent != kNone; }

  // Ok, or what is wrong. For tests: visits everything.
  Status check_invariants() const;

 private:
  using PageTokens = std::array<std::int32_t, kPageTokens>;
  struct Node {
    std::int32_t parent = kNone;  // kNone: not in the tree
    PageTokens tokens = {};
    std::map<PageTokens, std::int32_t> children;
    std::uint64_t last_used = 0;  // read only where nobody holds the page
  };
  using LeafOrder = std::pair<std::uint64_t, std::int32_t>;  // last_used, page

  // The root is the last node.
  Node& node(std::int32_t page) { return page == kRoot ? nodes_.back() : nodes_[static_cast<std::size_t>(page)]; }
  const Node& node(std::int32_t page) const { return page == kRoot ? nodes_.back() : nodes_[static_cast<std::size_t>(page)]; }
  bool unheld(std::int32_t page) const { return page != kRoot && pool_.references(page) == 1; }
  LeafOrder order(std::int32_t page) const { return {node(page).last_used, page}; }
  void take_out(std::int32_t page);

  KvPool& pool_;
  std::vector<Node> nodes_;     // by page
  std::set<LeafOrder> leaves_;  // that nobody holds
  std::int64_t pages_ = 0;
  std::int64_t evictable_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace reckoner
