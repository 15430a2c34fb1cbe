// Engine: runs requests, many at a time. One thread owns it and calls step() until it is idle.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "engine/sampler.h"
#include "model/forward.h"

namespace reckoner {

struct Request {
  std::vector<std::int32_t> prompt;  // token ids; at least one
  SamplingParams sampling;
  std::int64_t max_tokens = 0;            // of output; 0: as many as the context holds
  std::vector<std::int32_t> stop_tokens;  // any of these ends the output (and is reported as its last token)
};

enum class FinishReason : std::uint8_t { none, stop, length, error };

// What happened to a request in a step.
struct TokenEvent {
  std::int64_t request = 0;
  std::int32_t token = -1;  // -1: none, the request failed
  double logprob = 0;
  FinishReason finish = FinishReason::none;
  std::string error = {};  // with FinishReason::error: which step, layer and place went wrong
};

// For tests of the guard: the value that `place` computes for the last row of `request` becomes NaN in the step that processes its token
// at `position`.
struct InjectedFault {
  std::int64_t request = -1;
  std::int64_t position = 0;
  std::int32_t place = Guard::kClean;
};

struct EngineLimits {
  std::int64_t max_context = 4096;     // tokens of one sequence
  std::int64_t cache_tokens = 4096;    // tokens of all sequences together
  std::int64_t max_sequences = 8;      // sequences that run at a time
  std::int64_t max_step_tokens = 256;  // rows of a step; longer prompts are read in chunks of at most this
  KvCacheType cache_type = KvCacheType::automatic;
};

class Engine {
 public:
  Engine(const Model& model, const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool, Precision precision,
         const EngineLimits& limits);

  // Queues a request and returns its number. Errors: an id outside the vocabulary, too long for the context, sampling values out of range.
  Result<std::int64_t> submit(Request request);
  // Forgets the request; no event follows.
  void cancel(std::int64_t request);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // Runs one step: a token for each running request that has read its prompt, and a chunk of one prompt. Nothing when idle.
  std::vector<TokenEvent> step();

  InjectedFault inject;
  StepRunner& runner() { return runner_; }
  const KvPool& cache() const { return cache_; }

 private:
  struct Sequence {
    std::int64_t number = 0;
    Request request;
    std::vector<std::int32_t> tokens;  // prompt, then output
    std::int64_t computed = 0;         // tokens whose cache rows are written
    std::vector<std::int32_t> pages;
    TokenCounts counts;
    std::int64_t output() const { return static_cast<std::int64_t>(tokens.size() - request.prompt.size()); }
  };
  // Rows [first, first + rows) of the batch belong to a sequence.
  struct Share {
    Sequence* sequence = nullptr;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    std::int64_t sample = -1;  // which sampled row is its last one; -1: its prompt is not read to the end yet
  };

  void admit();
  void plan(std::vector<Share>& shares);
  void add_rows(Sequence& sequence, std::int64_t rows, std::vector<Share>& shares);
  void place_fault(const std::vector<Share>& shares);
  // The event of one sequence after a step, if any; `finished` when it has ended.
  void commit(const Share& share, const StepOutput& output, std::vector<TokenEvent>& events);
  TokenEvent take_token(const Share& share, const StepOutput& output);
  void finish(const Sequence& sequence);

  std::int64_t vocab_;
  EngineLimits limits_;
  StepRunner runner_;
  KvPool cache_;
  Sampler sampler_;
  BatchBuilder builder_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of arrival
  std::int64_t next_number_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0;  // sampled rows of the step being planned
};

}  // namespace reckoner
