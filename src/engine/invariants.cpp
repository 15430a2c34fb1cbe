// What CONTRACT.md says about the state between two steps, as code.
#include <fmt/format.h>

#include "engine/engine.h"

namespace reckoner {
namespace {

Status check_tokens(const Sequence& sequence) {
  const std::int64_t n = sequence.number;
  if (sequence.output() < 0 || sequence.output() >= sequence.request.max_tokens) return Error{fmt::format("{}: output too long", n)};
  if (sequence.computed < 0 || sequence.computed >= sequence.length()) return Error{fmt::format("{}: no token left to compute", n)};
  if (!std::equal(sequence.request.prompt.begin(), sequence.request.prompt.end(), sequence.tokens.begin()))
    return Error{fmt::format("{}: its tokens do not begin with its prompt", n)};
  return {};
}

Status check_pages(const Sequence& sequence, const KvPool& pool, const PrefixTree& tree) {
  const std::int64_t n = sequence.number;
  const auto pages = static_cast<std::int64_t>(sequence.pages.size());
  if (pages < KvPool::pages_for(sequence.computed)) return Error{fmt::format("{}: fewer pages than computed tokens need", n)};
  if (pages > KvPool::pages_for(sequence.longest())) return Error{fmt::format("{}: more pages than it can ever need", n)};
  if (sequence.shared != (sequence.cacheable ? sequence.computed / kPageTokens : 0))
    return Error{fmt::format("{}: {} shared pages of {} computed tokens", n, sequence.shared, sequence.computed)};
  for (std::int64_t i = 0; i < pages; ++i) {
    const std::int32_t page = sequence.pages[static_cast<std::size_t>(i)];
    if (tree.contains(page) != (i < sequence.shared)) return Error{fmt::format("{}: page {} of {} and the tree", n, i, pages)};
    // Rows that are still to be written may be seen by nobody else.
    if (i >= sequence.computed / kPageTokens && pool.references(page) != 1)
      return Error{fmt::format("{}: page {} is written and has {} holders", n, i, pool.references(page))};
  }
  return {};
}

}  // namespace

Status check_invariants(const Engine& engine) {
  const KvPool& pool = engine.cache_;
  std::vector<std::int32_t> holders(static_cast<std::size_t>(pool.pages()), 0);
  for (std::int32_t page = 0; page < pool.pages(); ++page) holders[static_cast<std::size_t>(page)] = engine.tree_.contains(page) ? 1 : 0;
  std::int64_t last = -1;
  for (const auto& sequence : engine.running_) {
    if (sequence->number <= last) return Error{"running sequences are not in order of arrival"};
    last = sequence->number;
    TRY(check_tokens(*sequence));
    TRY(check_pages(*sequence, pool, engine.tree_));
    for (const std::int32_t page : sequence->pages) ++holders[static_cast<std::size_t>(page)];
    std::int32_t at = PrefixTree::kRoot;
    for (std::int64_t i = 0; i < sequence->shared; ++i) {
      const std::int32_t found = engine.tree_.find(at, sequence->tokens_of_page(i));
      at = sequence->pages[static_cast<std::size_t>(i)];
      if (found != at) return Error{fmt::format("{}: the tree has another page {}", last, i)};
    }
  }
  for (const auto& sequence : engine.waiting_) {
    if (sequence->number <= last) return Error{"a waiting sequence arrived before a running one"};
    last = sequence->number;
    TRY(check_tokens(*sequence));
    if (!sequence->pages.empty() || sequence->shared != 0 || sequence->computed != 0)
      return Error{fmt::format("{} waits and has pages", last)};
  }
  if (static_cast<std::int64_t>(engine.running_.size()) > engine.limits_.max_sequences) return Error{"too many sequences run"};
  for (const std::int32_t page : pool.free_list()) {
    if (pool.references(page) != 0) return Error{fmt::format("page {} is free and has holders", page)};
    holders[static_cast<std::size_t>(page)] -= 1;  // -1 unless it is listed twice or held
  }
  for (std::int32_t page = 0; page < pool.pages(); ++page) {
    const std::int32_t expected = holders[static_cast<std::size_t>(page)];
    if (expected == 0 || (expected > 0 ? expected : 0) != pool.references(page) || expected < -1)
      return Error{fmt::format("page {} counts {} holders and has {}", page, pool.references(page), expected)};
  }
  const EngineStats stats = engine.stats();
  if (stats.submitted != stats.finished + stats.failed + stats.cancelled + stats.running + stats.waiting)
    return Error{"requests were lost or counted twice"};
  return engine.tree_.check_invariants();
}

}  // namespace reckoner
