// StepModel: what the engine needs of a model. A StepRunner is one; tests bring a small one whose answers they can foretell.
#pragma once

#include "model/forward.h"

namespace reckoner {

class StepModel {
 public:
  virtual ~StepModel() = default;
  virtual std::int64_t vocab() const = 0;
  // What a page of its cache holds; not placed anywhere yet.
  virtual KvLayout cache_layout() const = 0;
  virtual void use_cache(const KvLayout& placed) = 0;
  // The output is valid until the next step.
  virtual StepOutput run(const Batch& batch, const Fault& fault) = 0;
  // Where its cache has to lie; nullptr: in the host's memory.
  virtual DeviceMemory* memory() { return nullptr; }
  // The runner behind it; nullptr if there is none.
  virtual StepRunner* runner() { return nullptr; }
};

class RunnerModel final : public StepModel {
 public:
  RunnerModel(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
              const StepLimits& limits)
      : runner_(model, weights, device, pool, precision, limits) {}
  std::int64_t vocab() const override { return runner_.config().vocab_size; }
  KvLayout cache_layout() const override { return runner_.cache_layout(); }
  void use_cache(const KvLayout& placed) override { runner_.use_cache(placed); }
  StepOutput run(const Batch& batch, const Fault& fault) override {
    runner_.fault = fault;
    return runner_.run(batch);
  }
  DeviceMemory* memory() override { return runner_.memory(); }
  StepRunner* runner() override { return &runner_; }

 private:
  StepRunner runner_;
};

}  // namespace reckoner
