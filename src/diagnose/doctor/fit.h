// Whether a model fits a device: bytes by term, the largest context and batch, and what to change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/forward.h"

namespace reckoner::doctor {

// A device that steps are planned for.
struct PlannedDevice {
  DeviceInfo info;
  Catalogue catalogue;
  std::int64_t memory_bytes = 0;   // that a rank may have; on the processor what is free, 0 unknown
  std::int64_t program_bytes = 0;  // that the program takes there beside everything that a plan counts: fit.cpp has the reasons
  bool is_gpu() const { return info.cuda.present(); }
};

struct FitOptions {
  int ranks = 1;
  Precision precision = Precision::fast;
  KvCacheType cache_type = KvCacheType::automatic;
  std::int64_t context = 0;  // tokens; 0: the longest that fits
  std::int64_t streams = 1;  // requests of that many tokens at a time
  std::int64_t chunk = 512;  // prompt tokens a step
};

struct Term {
  std::string name;
  std::int64_t bytes = 0;
  std::string note;
};

// How many requests of a context fit.
struct Capacity {
  std::int64_t context = 0;
  std::int64_t streams = 0;
};

struct Fit {
  std::vector<Term> terms;  // of a rank
  std::int64_t context = 0;
  std::int64_t streams = 0;
  std::int64_t cache_tokens = 0;
  std::int64_t sequences = 0;        // what `serve --max-sequences` is for that many streams
  std::int64_t available_bytes = 0;  // 0: unknown
  bool fits = false;
  std::int64_t longest_context = 0;  // with that many streams; 0: none fits
  std::vector<Capacity> capacities;  // at some contexts
  std::vector<std::string> advice;   // when it does not fit, what would
  std::int64_t total() const;
};

// Plans steps of a rank's share of a model on a device that may only be described. Nothing is read of the weights.
class Planner {
 public:
  // `ranks` as check_split() allows; one on the processor.
  Planner(const Model& model, const PlannedDevice& device, const FitOptions& options, ThreadPool& pool);
  ~Planner();

  Fit fit();
  // What a step does, op by op; `tokens` and `context` at most what fit() gave. Empty where no kernel serves something.
  std::vector<Ops::Call> step(std::int64_t tokens, std::int64_t context);
  // Error: an op has no kernel.
  Status status() const;

 private:
  struct Plan;
  Plan plan(std::int64_t context, std::int64_t streams) const;
  std::int64_t fixed_bytes() const;
  std::int64_t graph_bytes(const Plan& plan, std::int64_t streams) const;
  std::int64_t bytes_at(std::int64_t context, std::int64_t streams) const;
  std::int64_t longest_context(std::int64_t streams) const;
  std::int64_t most_streams(std::int64_t context) const;
  void add_terms(Fit& fit) const;
  void advise(Fit& fit) const;

  const Model& model_;
  std::unique_ptr<Model> share_;
  PlannedDevice device_;
  FitOptions options_;
  ThreadPool& pool_;
  std::int64_t cache_bytes_per_token_ = 0;
  std::unique_ptr<Plan> chosen_;
};

// The rows of a step, and requests at a time, that `serve` takes for so many streams.
std::int64_t sequences_for(std::int64_t streams);
std::int64_t step_tokens_for(std::int64_t chunk, std::int64_t sequences);

}  // namespace reckoner::doctor
