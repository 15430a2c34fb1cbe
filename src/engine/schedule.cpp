// Who runs, with which pages, and how many rows of a step each gets.
#include <algorithm>

#include "engine/engine.h"

namespace reckoner {
namespace {

// A sequence is admitted when it and those that run already can go on for this many tokens each. More makes preemption rarer and
// leaves more memory unused; a page is the least that keeps a sequence from coming back only to be thrown out by the next step.
constexpr std::int64_t kHeadroomTokens = kPageTokens;
// Of the rows that decoding leaves, one in this many is for the oldest prompt, however long it is; the others go to short prompts first.
constexpr std::int64_t kOldestShare = 4;

// Whether `other` shares all pages of the tree that `sequence` has, and their next page's tokens are the same.
bool same_next_page(const Sequence& sequence, const Sequence& other) {
  const std::int64_t page = sequence.shared;
  if (other.shared < page || other.length() < (page + 1) * kPageTokens) return false;
  const auto last = static_cast<std::size_t>(page) - 1;
  if (page > 0 && sequence.pages[last] != other.pages[last]) return false;
  return std::ranges::equal(sequence.tokens_of_page(page), other.tokens_of_page(page));
}

}  // namespace

std::int64_t Engine::pages_needed_soon(const Sequence& sequence) const {
  const std::int64_t soon = std::min(sequence.longest(), sequence.length() + kHeadroomTokens);
  return std::max<std::int64_t>(0, KvPool::pages_for(soon) - static_cast<std::int64_t>(sequence.pages.size()));
}

void Engine::admit() {
  std::int64_t promised = 0;
  for (const auto& sequence : running_) promised += pages_needed_soon(*sequence);
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < limits_.max_sequences) {
    Sequence& next = *waiting_.front();
    adopt_cached(next);
    promised += pages_needed_soon(next);
    // Alone it has all pages, and submit() refused what these cannot hold.
    if (!running_.empty() && promised > available_pages()) return release_pages(next);
    if (next.preemptions == 0) {
      next.cached = next.computed;
      stats_.queue_times.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - next.submitted).count());
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Moves on over pages that the tree has, at most to the page before the last token: that one is computed, for its logits.
void Engine::adopt_cached(Sequence& sequence) {
  if (!sequence.cacheable) return;
  std::int64_t most = sequence.length() - 1;
  if (sequence.owes_prompt_logprobs()) most = std::min(most, sequence.prompt_logprobs_done);
  while ((sequence.shared + 1) * kPageTokens <= most) {
    const auto next = static_cast<std::size_t>(sequence.shared);
    const std::int32_t parent = next == 0 ? PrefixTree::kRoot : sequence.pages[next - 1];
    const std::int32_t page = tree_.enter(parent, sequence.tokens_of_page(sequence.shared));
    if (page == PrefixTree::kNone) return;
    if (next < sequence.pages.size()) {  // another sequence was faster with a page that this one has begun
      cache_.release(sequence.pages[next]);
      sequence.pages[next] = page;
    } else {
      sequence.pages.push_back(page);
    }
    ++sequence.shared;
    sequence.computed = std::max(sequence.computed, sequence.shared * kPageTokens);
  }
}

// Gives pages to the tree that have become whole. Where it has the same one already, that is used from now on.
void Engine::share_computed(Sequence& sequence) {
  if (!sequence.cacheable) return;
  for (; (sequence.shared + 1) * kPageTokens <= sequence.computed; ++sequence.shared) {
    const auto next = static_cast<std::size_t>(sequence.shared);
    const std::int32_t parent = next == 0 ? PrefixTree::kRoot : sequence.pages[next - 1];
    const std::span<const std::int32_t> tokens = sequence.tokens_of_page(sequence.shared);
    const std::int32_t page = tree_.enter(parent, tokens);
    if (page == PrefixTree::kNone) {
      tree_.add(parent, tokens, sequence.pages[next]);
    } else {
      cache_.release(sequence.pages[next]);
      sequence.pages[next] = page;
    }
  }
}

void Engine::release_pages(Sequence& sequence) {
  const auto shared = static_cast<std::size_t>(sequence.shared);
  for (std::size_t page = sequence.pages.size(); page-- > shared;) cache_.release(sequence.pages[page]);
  tree_.leave(std::span(sequence.pages).first(shared));
  sequence.pages.clear();
  sequence.shared = 0;
  sequence.computed = 0;
  sequence.cacheable = true;
}

// After a value that is not finite: the rows that it was computed from may be bad too, and so may all that was computed from those.
void Engine::distrust_pages(Sequence& sequence) {
  if (sequence.shared == 0) return;
  const std::int32_t first = sequence.pages.front();
  for (const auto& other : running_) {
    if (other->shared == 0 || other->pages.front() != first) continue;
    other->shared = 0;
    other->cacheable = false;
  }
  tree_.drop(first);
}

void Engine::flush() {
  for (const auto& sequence : running_) {
    sequence->shared = 0;
    sequence->cacheable = false;
  }
  tree_.clear();
}

// Pages for the first `tokens` tokens. False, and nothing has changed, if there are too few.
bool Engine::reserve(Sequence& sequence, std::int64_t tokens) {
  const std::int64_t missing = KvPool::pages_for(tokens) - static_cast<std::int64_t>(sequence.pages.size());
  if (missing <= 0) return true;
  if (missing > available_pages()) return false;
  while (cache_.free_pages() < missing) tree_.evict();
  const std::vector<std::int32_t> pages = *cache_.allocate(missing);
  sequence.pages.insert(sequence.pages.end(), pages.begin(), pages.end());
  return true;
}

// Back to the head of the queue, with its tokens and without its pages.
void Engine::preempt_youngest() {
  CHECK(running_.size() > 1, "a request that runs alone has all the pages there are");
  Sequence& youngest = *running_.back();
  release_pages(youngest);
  ++youngest.preemptions;
  ++stats_.preemptions;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

std::vector<Engine::Share> Engine::plan() {
  builder_.clear();
  samples_ = 0;
  prompt_logprob_rows_ = 0;
  for (const auto& sequence : running_) {
    if (sequence->left() > 1) adopt_cached(*sequence);
  }
  std::vector<Share> shares;
  plan_decodes(shares);
  plan_prompts(shares);
  return shares;
}

void Engine::plan_decodes(std::vector<Share>& shares) {
  // The oldest first: the youngest, which has to go when pages run out, is never planned before one that needs a page.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.left() != 1) continue;
    while (i < running_.size() && !reserve(sequence, sequence.length())) preempt_youngest();
    if (i < running_.size()) shares.push_back(add_rows(sequence, 1));
  }
}

// Whether a page that `sequence` needs next is one that another's rows will make soon.
bool Engine::awaits_another(const Sequence& sequence, const std::vector<Sequence*>& granted) const {
  if (!sequence.cacheable || sequence.owes_prompt_logprobs()) return false;
  if ((sequence.shared + 1) * kPageTokens >= sequence.length()) return false;
  return std::any_of(granted.begin(), granted.end(), [&](const Sequence* other) {
    return other->cacheable && other->computed >= sequence.computed && same_next_page(sequence, *other);
  });
}

// Divides `budget` rows among the sequences that still read.
void Engine::grant_rows(std::int64_t budget) {
  std::vector<Sequence*> reading;
  for (const auto& sequence : running_) {
    sequence->granted = 0;
    if (sequence->left() > 1) reading.push_back(sequence.get());
  }
  if (reading.empty()) return;
  std::vector<Sequence*> granted;
  const auto grant = [&](Sequence& sequence, std::int64_t rows) {
    rows = std::min({rows, budget, sequence.left() - sequence.granted});
    if (rows > 0 && sequence.granted == 0) granted.push_back(&sequence);
    sequence.granted += rows;
    budget -= rows;
  };
  grant(*reading.front(), std::max<std::int64_t>(1, budget / kOldestShare));
  std::stable_sort(reading.begin(), reading.end(), [](const Sequence* a, const Sequence* b) { return a->left() < b->left(); });
  for (Sequence* sequence : reading) {
    if (sequence->granted > 0 || !awaits_another(*sequence, granted)) grant(*sequence, budget);
  }
}

void Engine::plan_prompts(std::vector<Share>& shares) {
  grant_rows(limits_.max_step_tokens - builder_.rows());
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.left() <= 1 || sequence.granted == 0) continue;
    const auto room = [&] {
      return (static_cast<std::int64_t>(sequence.pages.size()) + available_pages()) * kPageTokens - sequence.computed;
    };
    // With rows of others in the step, there is time to wait for their pages; otherwise nobody would give any back.
    while (shares.empty() && room() <= 0) preempt_youngest();
    std::int64_t rows = std::min(sequence.granted, room());
    if (sequence.owes_prompt_logprobs()) rows = std::min(rows, limits_.prompt_logprob_rows - prompt_logprob_rows_);
    if (rows <= 0) continue;
    CHECK(reserve(sequence, sequence.computed + rows));
    shares.push_back(add_rows(sequence, rows));
  }
}

Engine::Share Engine::add_rows(Sequence& sequence, std::int64_t rows) {
  Share share{.sequence = &sequence, .first_row = builder_.rows(), .rows = rows, .first_sample = samples_};
  share.ends = rows == sequence.left();
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t position = sequence.computed + i;
    const bool reports =
        sequence.owes_prompt_logprobs() && position >= sequence.prompt_logprobs_done && position + 1 < sequence.prompt_length();
    if (reports && share.prompt_samples++ == 0) share.first_prompt_token = position + 1;
    const bool sampled = reports || (share.ends && i + 1 == rows);
    builder_.add(sequence.tokens[static_cast<std::size_t>(position)], position, sequence.pages, sampled ? Sample::yes : Sample::no);
    samples_ += sampled ? 1 : 0;
  }
  prompt_logprob_rows_ += share.prompt_samples;
  return share;
}

}  // namespace reckoner
