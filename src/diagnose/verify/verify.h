// verify: runs the token ids of a reference file and compares hidden states and logits with what another implementation computed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "diagnose/verify/routing.h"
#include "engine/step_model.h"

namespace reckoner {

// Token ids and what the reference computed for them. A file holds one case (input_ids, logits, hidden.L) or several
// (<case>.input_ids, <case>.last_logits, <case>.argmax, <case>.max_logprob, <case>.generated, <case>.hidden_last).
struct ReferenceCase {
  std::string name;
  std::vector<std::int32_t> input_ids = {};  // [tokens]
  std::int64_t first_logit_row = 0;          // position of the first row of `logits`
  std::int64_t vocab = 0;
  std::vector<float> logits = {};               // [rows, vocab], up to the last position
  std::vector<std::int32_t> argmax = {};        // [tokens], or empty
  std::vector<float> max_logprob = {};          // [tokens], or empty
  std::vector<std::int32_t> generated = {};     // what greedy decoding goes on with, or empty
  std::int64_t first_hidden_row = 0;            // position of the first row of each `hidden`
  std::vector<std::vector<float>> hidden = {};  // [layers + 1] of [rows, hidden size], up to the last position
};

// Errors name the file and the tensor that is missing or of another shape or dtype than expected.
Result<std::vector<ReferenceCase>> read_reference(const std::string& path, const ModelConfig& config);

struct VerifyBound {
  double logit_error = 0;  // largest |logit - reference| allowed
  // Where the two best logits of the reference differ by more than this, the best must be the same.
  double argmax_gap = 0;
};
// exact reproduces the references: 1e-3. fast rounds activations to BF16 in every linear layer, and an FP8 cache what it keeps of a token:
// their bounds are in terms of what the logits of the case spread over.
VerifyBound bound_for(Precision precision, KvCacheType cache_type, const ReferenceCase& reference);

// One way of feeding the tokens, and how far off it was.
struct VerifyRun {
  std::int64_t chunk = 0;                 // tokens a step
  std::vector<double> hidden_error = {};  // [layers + 1]: largest |difference|
  std::vector<double> hidden_scale = {};  // [layers + 1]: largest |reference|
  double logit_error = 0;
  double logprob_error = 0;         // of the most probable token
  std::int64_t argmax_checked = 0;  // positions
  std::int64_t argmax_equal = 0;
  std::int64_t argmax_wrong = 0;     // differ although the gap is wider than the bound
  std::int64_t generated_equal = 0;  // leading tokens of greedy decoding that agree
  // Positions whose logits are beyond the bound and right all the same: exact arithmetic that resolves these near ties of the routers as
  // the run did comes to the same.
  std::int64_t left_out = 0;
  std::vector<RoutingChange> ties = {};
  std::string failure = {};  // empty: passed
};

struct VerifyCase {
  std::string name;
  std::int64_t tokens = 0;
  std::int64_t generated = 0;
  VerifyBound bound;
  std::vector<VerifyRun> runs;
  bool passed() const;
};

// What tells near ties of the routers from errors, asked only when a position is beyond the bound: the same model with the same limits in
// exact arithmetic, on the processor. Empty: every position counts.
struct TieBreaker {
  std::function<std::unique_ptr<StepRunner>()> make_exact = {};
  const ModelWeights* host_weights = nullptr;  // the model's, in the host's memory
};

// Runs every case with each chunk size (0: as large as a step may be), the cache starting empty each time. The runner's limits must
// hold the longest case and sample every row of a step.
std::vector<VerifyCase> verify(StepRunner& runner, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks);
// The same for a model with a runner behind it.
std::vector<VerifyCase> verify(StepModel& model, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks,
                               const TieBreaker& ties = {});

}  // namespace reckoner
