// SingleSequence: one sequence, fed by hand: what verification and tests use instead of an Engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "engine/step_model.h"

namespace reckoner {

class SingleSequence {
 public:
  // Takes pages for the runner's max_context.
  explicit SingleSequence(StepRunner& runner) : view_(std::in_place, runner), model_(*view_), cache_(pool_for(*view_)) { take_pages(); }
  // The same; the model has one sequence at a time.
  explicit SingleSequence(StepModel& model) : model_(model), cache_(pool_for(model)) { take_pages(); }
  SingleSequence(const SingleSequence&) = delete;
  SingleSequence& operator=(const SingleSequence&) = delete;

  // Appends tokens (at most max_tokens of the runner) and returns logits, of all of them [tokens, vocab] or of the last one [1, vocab].
  StepOutput append(std::span<const std::int32_t> tokens, Sample sample_all) {
    model_.use_cache(cache_.layout(), cache_.pages());
    builder_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      builder_.add(tokens[i], length_++, pages_, sample_all == Sample::yes || i + 1 == tokens.size() ? Sample::yes : Sample::no);
    }
    return model_.run(builder_.batch(), model_.runner()->fault);
  }
  void restart() { length_ = 0; }
  std::int64_t length() const { return length_; }

 private:
  static KvPool pool_for(StepModel& model) {
    return {model.cache_layout(), KvPool::pages_for(model.runner()->limits().max_context), model.memory()};
  }
  void take_pages() { pages_ = *cache_.allocate(cache_.pages()); }

  std::optional<RunnerView> view_;
  StepModel& model_;
  KvPool cache_;
  std::vector<std::int32_t> pages_;
  BatchBuilder builder_;
  std::int64_t length_ = 0;
};

}  // namespace reckoner
