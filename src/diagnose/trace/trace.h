// trace: runs a prompt with a look at every op: what the values are, where precision is lost, where experts and selections go, and where a
// value first stops being finite or right.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/trace/check.h"
#include "diagnose/trace/origin.h"
#include "diagnose/trace/step_probe.h"
#include "diagnose/trace/value_store.h"
#include "model/forward.h"

namespace reckoner::trace {

// What is traced.
struct TraceSubject {
  const Model& model;
  const ModelWeights& weights;  // as steps read them
  Device device;
  ThreadPool& pool;
  Precision precision = Precision::fast;
  KvCacheType cache_type = KvCacheType::automatic;
};

enum class Wish : std::uint8_t { no, yes };

struct TraceWishes {
  std::vector<std::int32_t> prompt;  // token ids
  std::int64_t decode_steps = 4;     // greedy, after the prompt
  std::int64_t chunk = 64;           // tokens a step; in a comparison with exact all that they make of each op is kept
  Wish compare_exact = Wish::yes;    // the same steps in exact, where the precision is another
  Wish check_ops = Wish::no;         // each call against its op's reference
  Wish keep_values = Wish::no;
  BundleWish bundle = {};
  Fault fault = {};  // for tests: in the step that has `fault_position`
  std::int64_t fault_position = -1;
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  std::function<bool()> interrupted = {};
};

// A call, over all steps.
struct CallSummary {
  CallName name;
  std::string kernel;
  ValueStats output;  // its first one
  double took_us = 0;
  double error_squares = 0;  // of the output against exact
  double exact_squares = 0;
  std::int64_t compared = 0;  // elements

  // Relative rms against exact; nothing where that was not compared.
  std::optional<double> error() const;
};

// How a layer's router spreads tokens.
struct RouterBalance {
  std::int64_t layer = 0;
  std::vector<std::int64_t> chosen;  // of each expert
  std::int64_t rerouted = 0;         // tokens that exact sends to other experts
  std::int64_t tokens = 0;

  double entropy() const;    // 1: all experts alike; 0: always the same
  double max_share() const;  // of the expert that is chosen most
  std::int64_t idle() const;
};

// How much of what dense attention would look at a sparse layer sees.
struct SelectionQuality {
  std::int64_t layer = 0;
  std::int64_t rows = 0;  // that had more to choose from than they could
  double mass_kept = 0;   // sum over rows of the mean over heads: share of the softmax that the selected positions hold
  double least_kept = 1;  // of one row

  double mean_kept() const { return rows > 0 ? mass_kept / static_cast<double>(rows) : 1; }
};

struct TraceReport {
  std::int64_t prompt_tokens = 0;
  std::int64_t steps = 0;
  std::vector<std::int32_t> generated;
  std::vector<CallSummary> calls;  // in the order of a step
  std::vector<RouterBalance> routers;
  std::vector<SelectionQuality> selections;
  bool compared_exact = false;
  std::optional<Origin> origin;    // of a value that is not finite
  std::optional<WrongCall> wrong;  // with check_ops
  std::int64_t checked_calls = 0;
  std::int64_t wrong_calls = 0;
  double check_worst = 0;  // of those that agree, in terms of what is allowed
  std::string check_worst_place;
  ValueStore values;
};

// Errors: the device failed, or was too small; interrupted.
Result<TraceReport> trace(const TraceSubject& subject, const TraceWishes& wishes);

}  // namespace reckoner::trace
