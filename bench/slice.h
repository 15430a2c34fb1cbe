// A slice of GLM-5: two of its layers at their true widths, with made-up weights in the published formats (experts NVFP4, the rest BF16),
// 32 experts a layer instead of 256, and a small vocabulary. What a layer costs here, it costs in the whole model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "model/forward.h"

namespace reckoner {

// Random weights for every rule of a family, in memory.
class MadeUpWeights : public TensorSource {
 public:
  MadeUpWeights(const Family& family, const ModelConfig& config, ThreadPool& pool);
  const Tensor* find(std::string_view name) const override;
  std::string locate(std::string_view name) const override { return "made-up tensor '" + std::string(name) + "'"; }

 private:
  void add(const std::string& name, DType dtype, const Shape& shape);
  void fill(ThreadPool& pool);

  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<Buffer> buffers_;
};

// A slice that is ready to run, with a cache full of made-up keys.
class Slice {
 public:
  Slice(ThreadPool& pool, const Catalogue& catalogue, const DeviceInfo& device, Precision precision, std::int64_t max_context);

  static constexpr std::int64_t kChunk = 256;  // rows of a step, as the engine has it

  // `tokens` rows that end at a context of `context` tokens, in steps of at most kChunk.
  void run(std::int64_t tokens, std::int64_t context);
  // What that must read, write and multiply at least.
  Cost cost(std::int64_t tokens, std::int64_t context);
  std::vector<Ops::Call> calls(std::int64_t tokens, std::int64_t context);

  StepRunner& runner() { return *runner_; }
  std::int64_t weight_bytes() const { return weight_bytes_; }
  std::int64_t cache_bytes() const { return cache_->layout().page_bytes * cache_->pages(); }

 private:
  void step(std::int64_t tokens, std::int64_t context);

  Model model_;
  std::unique_ptr<MadeUpWeights> source_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<KvPool> cache_;
  std::vector<std::int32_t> pages_;
  std::int64_t weight_bytes_ = 0;
  BatchBuilder builder_;
};

}  // namespace reckoner
