// Engine: runs requests, many at a time. One thread owns it and calls step() until it is idle. CONTRACT.md says what holds when.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/bad_step.h"
#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "engine/mask_worker.h"
#include "engine/prefix_tree.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/stats.h"
#include "engine/step_model.h"

namespace reckoner {

// What an engine with these limits asks of a step.
StepLimits step_limits(const EngineLimits& limits);

class Engine {
 public:
  // On the processor.
  Engine(const Model& model, const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool, Precision precision,
         const EngineLimits& limits)
      : Engine(model, model.weights, {.info = device, .catalogue = catalogue}, pool, precision, limits) {}
  // On a device, with the model's weights where it reads them. Look at status() before the first step.
  Engine(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
         const EngineLimits& limits);
  Engine(std::unique_ptr<StepModel> model, const EngineLimits& limits);

  // Queues a request and returns its number: numbers grow. Errors: an id outside the vocabulary, too long for the context or the cache,
  // values out of range.
  Result<std::int64_t> submit(Request request);
  // Forgets the request; no event follows.
  void cancel(std::int64_t request);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // Runs one step: a token for each running request that has read its prompt, and chunks of prompts. Nothing when idle.
  std::vector<TokenEvent> step();
  // Forgets what the prefix cache holds. Running requests go on, and what they have computed is not kept.
  void flush();

  EngineStats stats() const;
  const EngineLimits& limits() const { return limits_; }
  // Tokens of the longest request that can be served: prompt and output together.
  std::int64_t longest_request() const { return std::min(limits_.max_context, cache_.pages() * kPageTokens); }

  InjectedFault inject;
  BadStepSink on_bad_step;  // may be empty
  StepRunner& runner();
  Status status() const { return model_->status(); }
  // That run the model, each a part of it.
  int ranks() const { return model_->ranks(); }
  const KvPool& cache() const { return cache_; }

 private:
  // Rows [first_row, first_row + rows) of the batch belong to a sequence.
  struct Share {
    Sequence* sequence = nullptr;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    std::int64_t first_sample = 0;        // among the batch's sampled rows: those of the prompt come first, the last token's is the last
    std::int64_t first_prompt_token = 0;  // the prompt token that the first of them predicts
    std::int64_t prompt_samples = 0;
    bool ends = false;  // with the last token there is: the next one is sampled
  };

  // What the logits of a share say.
  struct Draw {
    std::optional<std::int64_t> bad_sample = {};  // the first of its sampled rows that is not finite; then there is no token
    std::optional<std::int32_t> token = {};       // nothing where the constraint allows none, or the share does not end
    double logprob = 0;                           // if asked for
    std::vector<TokenLogprob> top = {};
  };

  // schedule.cpp
  void admit();
  std::vector<Share> plan();
  void plan_decodes(std::vector<Share>& shares);
  void plan_prompts(std::vector<Share>& shares);
  void grant_rows(std::int64_t budget);
  bool awaits_another(const Sequence& sequence, const std::vector<Sequence*>& granted) const;
  Share add_rows(Sequence& sequence, std::int64_t rows);
  std::int64_t available_pages() const { return cache_.free_pages() + tree_.evictable_pages(); }
  std::int64_t pages_needed_soon(const Sequence& sequence) const;
  bool reserve(Sequence& sequence, std::int64_t tokens);
  void adopt_cached(Sequence& sequence);
  void share_computed(Sequence& sequence);
  void release_pages(Sequence& sequence);
  void distrust_pages(Sequence& sequence);
  void preempt_youngest();

  // engine.cpp
  Status check_request(const Request& request) const;
  Fault fault_for(const std::vector<Share>& shares) const;
  void start_masks(const std::vector<Share>& shares);
  std::vector<Draw> draw_tokens(const std::vector<Share>& shares, const StepOutput& output);
  Draw draw(const Share& share, const StepOutput& output, Sampler& sampler, ThreadPool* helpers) const;
  void commit(const Share& share, const StepOutput& output, const Draw& draw, std::string error, std::vector<TokenEvent>& events);
  void show_bad_step(const std::vector<Share>& shares, const StepOutput& output, const std::vector<Draw>& draws,
                     const std::vector<std::string>& errors);
  std::string what_is_not_finite(const Share& share, const StepOutput& output, const Draw& draw);
  TokenEvent take_token(const Share& share, const Draw& draw);
  void measure(const StepOutput& output);
  void take_prompt_logprobs(const Share& share, const StepOutput& output);
  void finish(Sequence& sequence);
  std::span<const float> logits_row(const StepOutput& output, std::int64_t sample) const {
    return {output.logits.f32() + sample * vocab_, static_cast<std::size_t>(vocab_)};
  }

  friend Status check_invariants(const Engine& engine);

  EngineLimits limits_;
  std::unique_ptr<StepModel> model_;
  std::int64_t vocab_;
  KvPool cache_;
  PrefixTree tree_;
  std::vector<Sampler> samplers_;  // one a thread
  MaskWorker masks_;
  BatchBuilder builder_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // in order of arrival; all arrived after the running ones
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of arrival
  std::int64_t next_number_ = 0;
  std::int64_t samples_ = 0;              // sampled rows of the step being planned
  std::int64_t prompt_logprob_rows_ = 0;  // of those, rows of prompts
  EngineStats stats_;                     // of what stats() does not count when asked
};

// Ok, or what is wrong with the state between two steps. For tests: visits everything.
Status check_invariants(const Engine& engine);

}  // namespace reckoner
