// TensorParallelModel: several ranks that run one model together, as one StepModel. Each rank is a thread with its share of the weights,
// its own runner and its own cache; what one rank of a page holds, the others hold under the same number.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/step_model.h"
#include "parallel/rank_threads.h"

namespace reckoner {

// What a rank is made of. `share` and `weights` must outlive the model, and so must the device's memory.
struct RankParts {
  const Model* share = nullptr;
  const ModelWeights* weights = nullptr;  // where the device reads them
  Device device = {};
  std::unique_ptr<Communicator> communicator = nullptr;
  std::string name = {};  // for messages: "cuda:1"
};

class TensorParallelModel final : public StepModel {
 public:
  // One a rank, in order. On the processor the ranks divide the threads of `pool`, each at least one; the pool itself is free for others.
  TensorParallelModel(std::vector<RankParts> parts, ThreadPool& pool, Precision precision, const StepLimits& limits);
  ~TensorParallelModel() override;

  std::int64_t vocab() const override { return vocab_; }
  // A rank's; they are alike.
  KvLayout cache_layout() const override;
  // `placed` is the first rank's cache, the others get one as large. One cache at a time: rows in another one are lost.
  void use_cache(const KvLayout& placed, std::int64_t pages) override;
  StepOutput run(const Batch& batch, const Fault& fault) override;
  ThreadPool* pool() override { return &pool_; }
  DeviceMemory* memory() override;
  StepRunner* runner() override;
  int ranks() const override { return static_cast<int>(ranks_.size()); }
  Status status() const override;
  // Of any rank, for tests: what happens when it fails.
  Communicator& communicator(int rank);

 private:
  struct OneRank;
  void run_rank(OneRank& rank, const Batch& batch, const Fault& fault);
  void record_alike(std::int64_t rows);

  ThreadPool& pool_;
  std::int64_t vocab_;
  std::vector<std::unique_ptr<OneRank>> ranks_;
  RankThreads threads_;
  Buffer logits_;  // [samples, vocab] f32: the ranks' parts side by side
};

}  // namespace reckoner
