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
  // The layout, placed in a pool of this many pages.
  virtual void use_cache(const KvLayout& placed, std::int64_t pages) = 0;
  // The output is valid until the next step.
  virtual StepOutput run(const Batch& batch, const Fault& fault) = 0;
  // Threads that are free between steps; nullptr: only the caller.
  virtual ThreadPool* pool() { return nullptr; }
  // Where its cache has to lie; nullptr: in the host's memory.
  virtual DeviceMemory* memory() { return nullptr; }
  // The runner behind it; nullptr if there is none. Of several ranks the first one's: what it does, the others do too.
  virtual StepRunner* runner() { return nullptr; }
  virtual int ranks() const { return 1; }
  // To be looked at before the first step.
  virtual Status status() const { return {}; }
};

// A runner that somebody else owns.
class RunnerView final : public StepModel {
 public:
  explicit RunnerView(StepRunner& runner) : runner_(runner) {}
  std::int64_t vocab() const override { return runner_.config().vocab_size; }
  KvLayout cache_layout() const override { return runner_.cache_layout(); }
  void use_cache(const KvLayout& placed, std::int64_t) override { runner_.use_cache(placed); }
  StepOutput run(const Batch& batch, const Fault& fault) override {
    runner_.fault = fault;
    return runner_.run(batch);
  }
  ThreadPool* pool() override { return &runner_.ops().pool(); }
  DeviceMemory* memory() override { return runner_.memory(); }
  StepRunner* runner() override { return &runner_; }
  Status status() const override { return runner_.status(); }

 private:
  StepRunner& runner_;
};

class RunnerModel final : public StepModel {
 public:
  RunnerModel(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
              const StepLimits& limits)
      : runner_(model, weights, device, pool, precision, limits), view_(runner_) {}
  std::int64_t vocab() const override { return view_.vocab(); }
  KvLayout cache_layout() const override { return view_.cache_layout(); }
  void use_cache(const KvLayout& placed, std::int64_t pages) override { view_.use_cache(placed, pages); }
  StepOutput run(const Batch& batch, const Fault& fault) override { return view_.run(batch, fault); }
  ThreadPool* pool() override { return view_.pool(); }
  DeviceMemory* memory() override { return view_.memory(); }
  StepRunner* runner() override { return &runner_; }
  Status status() const override { return view_.status(); }

 private:
  StepRunner runner_;
  RunnerView view_;
};

}  // namespace reckoner
