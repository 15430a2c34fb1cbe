// SingleSequence: one sequence, fed by hand: what verification and tests use instead of an Engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "model/forward.h"

namespace reckoner {

class SingleSequence {
 public:
  // Takes pages for the runner's max_context.
  explicit SingleSequence(StepRunner& runner)
      : runner_(runner), cache_(runner.cache_layout(), KvPool::pages_for(runner.limits().max_context), runner.memory()) {
    pages_ = *cache_.allocate(cache_.pages());
  }

  // Appends tokens (at most max_tokens of the runner) and returns logits, of all of them [tokens, vocab] or of the last one [1, vocab].
  StepOutput append(std::span<const std::int32_t> tokens, Sample sample_all) {
    runner_.use_cache(cache_.layout());
    builder_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      builder_.add(tokens[i], length_++, pages_, sample_all == Sample::yes || i + 1 == tokens.size() ? Sample::yes : Sample::no);
    }
    return runner_.run(builder_.batch());
  }
  void restart() { length_ = 0; }
  std::int64_t length() const { return length_; }

 private:
  StepRunner& runner_;
  KvPool cache_;
  std::vector<std::int32_t> pages_;
  BatchBuilder builder_;
  std::int64_t length_ = 0;
};

}  // namespace reckoner
