#include "engine/prefix_tree.h"

#include <gtest/gtest.h>

namespace reckoner {
namespace {

class PrefixTreeTest : public testing::Test {
 protected:
  static KvLayout layout() {
    KvLayout layout;
    layout.page_bytes = 64;
    return layout;
  }
  static std::vector<std::int32_t> page_of(std::int32_t value) { return std::vector<std::int32_t>(kPageTokens, value); }

  // A sequence whose pages are those of `values`, computed where the tree has none; it holds them until leave().
  std::vector<std::int32_t> hold(const std::vector<std::int32_t>& values) {
    std::vector<std::int32_t> path;
    for (const std::int32_t value : values) {
      const std::int32_t parent = path.empty() ? PrefixTree::kRoot : path.back();
      std::int32_t page = tree_.enter(parent, page_of(value));
      if (page == PrefixTree::kNone) {
        page = pool_.allocate(1)->front();
        tree_.add(parent, page_of(value), page);
      }
      path.push_back(page);
      expect_sound();
    }
    return path;
  }
  void leave(const std::vector<std::int32_t>& path) {
    tree_.leave(path);
    expect_sound();
  }
  bool has(const std::vector<std::int32_t>& values) {
    std::int32_t at = PrefixTree::kRoot;
    for (const std::int32_t value : values) {
      at = tree_.find(at, page_of(value));
      if (at == PrefixTree::kNone) return false;
    }
    return true;
  }
  void expect_sound() {
    const Status sound = tree_.check_invariants();
    EXPECT_TRUE(sound.ok()) << sound.error().what;
  }

  KvPool pool_{layout(), 8};
  PrefixTree tree_{pool_};
};

TEST_F(PrefixTreeTest, SharesWhatBeginsAlike) {
  const auto first = hold({1, 2, 3});
  const auto second = hold({1, 2, 4});
  EXPECT_EQ(first[0], second[0]);
  EXPECT_EQ(first[1], second[1]);
  EXPECT_NE(first[2], second[2]);
  EXPECT_EQ(pool_.references(first[0]), 3);  // two sequences and the tree
  EXPECT_EQ(tree_.pages(), 4);
  EXPECT_EQ(tree_.evictable_pages(), 0);
  leave(first);
  EXPECT_EQ(tree_.evictable_pages(), 1);
  leave(second);
  EXPECT_EQ(tree_.evictable_pages(), 4);
  EXPECT_EQ(pool_.free_pages(), 4);
}

// One token that differs is another page.
TEST_F(PrefixTreeTest, ComparesEveryToken) {
  hold({1});
  std::vector<std::int32_t> tokens = page_of(1);
  EXPECT_NE(tree_.find(PrefixTree::kRoot, tokens), PrefixTree::kNone);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = 2;
    EXPECT_EQ(tree_.find(PrefixTree::kRoot, tokens), PrefixTree::kNone) << i;
    tokens[i] = 1;
  }
}

TEST_F(PrefixTreeTest, EvictsTheLeafThatWasUsedLongestAgo) {
  const auto a = hold({1, 2});
  const auto b = hold({3});
  leave(a);
  leave(b);
  leave(hold({1, 2}));  // used again: now {3} is the oldest
  tree_.evict();
  EXPECT_FALSE(has({3}));
  tree_.evict();  // a leaf before the page above it
  EXPECT_TRUE(has({1}));
  EXPECT_FALSE(has({1, 2}));
  tree_.evict();
  EXPECT_EQ(pool_.free_pages(), pool_.pages());
  expect_sound();
}

TEST_F(PrefixTreeTest, NeverEvictsWhatSequencesHold) {
  const auto held = hold({1, 2});
  leave(hold({1, 2, 3, 4}));
  EXPECT_EQ(tree_.evictable_pages(), 2);
  tree_.evict();
  tree_.evict();
  EXPECT_EQ(tree_.evictable_pages(), 0);
  EXPECT_TRUE(has({1, 2}));
  leave(held);
  EXPECT_EQ(tree_.evictable_pages(), 2);
}

TEST_F(PrefixTreeTest, DroppedPagesStayWithTheirSequences) {
  const auto held = hold({1, 2});
  leave(hold({1, 5}));
  leave(hold({7}));
  tree_.drop(held[0]);
  expect_sound();
  EXPECT_FALSE(has({1}));
  EXPECT_TRUE(has({7}));
  EXPECT_EQ(pool_.references(held[0]), 1);
  EXPECT_EQ(pool_.references(held[1]), 1);
  EXPECT_EQ(pool_.free_pages(), 5);
  tree_.clear();
  expect_sound();
  EXPECT_EQ(tree_.pages(), 0);
  EXPECT_EQ(pool_.free_pages(), 6);
}

}  // namespace
}  // namespace reckoner
