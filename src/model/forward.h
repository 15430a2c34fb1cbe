// What a block sees of a step, and the step itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/kv_layout.h"
#include "model/loader.h"
#include "ops/kernel.h"

namespace reckoner {

// One step's work; immutable while it runs. Prefill and decode look alike: rows of tokens, each somewhere in its sequence.
struct Batch {
  Tensor tokens;       // [tokens] i32: ids
  TokenPlaces places;  // position and page table of each
  Tensor sample_rows;  // [samples] i32: rows of `tokens` whose logits are wanted
};

// Memory for intermediate tensors: planned once, then handed out the same way in each step. Nothing is allocated while serving.
class Arena {
 public:
  Tensor allocate(DType dtype, const Shape& shape);
  Tensor f32(const Shape& shape) { return allocate(DType::f32, shape); }
  Tensor i32(const Shape& shape) { return allocate(DType::i32, shape); }

  // Everything allocated while it lives is given back when it dies.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::int64_t mark_;
  };

  // Planning starts with an empty arena that only counts; reserve() allocates what was counted.
  void reserve() { buffer_ = Buffer(peak_); }
  std::int64_t size_bytes() const { return buffer_.size_bytes(); }

 private:
  Buffer buffer_;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

// Called with each meaningful value of a step; free when empty. `layer` is -1 outside the layers.
using Taps = std::function<void(std::string_view name, std::int64_t layer, const Tensor& value)>;

// Places that the guard names, as numbers for Guard::place.
struct GuardPlace {
  static constexpr std::int32_t kEmbedding = 0;
  static std::int32_t attention(std::int64_t layer) { return static_cast<std::int32_t>(1 + 2 * layer); }
  static std::int32_t feed_forward(std::int64_t layer) { return static_cast<std::int32_t>(2 + 2 * layer); }
  static std::int64_t count(std::int64_t layers) { return 1 + 2 * layers; }
  // "layer 3, attention", "layer 3, feed-forward", "the embedding"
  static std::string name(std::int32_t place);
};

// For tests of the guard: puts a NaN into the output of a place, in one row of the batch.
struct Fault {
  std::int32_t place = Guard::kClean;
  std::int64_t row = 0;
};

// One object a step and rank; no globals.
struct Forward {
  const ModelConfig& config;
  const Batch& batch;
  Ops& ops;
  Arena& scratch;
  const Taps& taps;
  const KvLayout& cache;
  Precision precision;
  std::int64_t max_context;
  Tensor cosine;  // [tokens, rope / 2] f32
  Tensor sine;    // [tokens, rope / 2] f32

  std::int64_t tokens() const { return batch.tokens.dim(0); }
  // y = x w^T in new scratch memory: [rows of x, w.rows]
  Tensor linear(const Tensor& x, const Weight& w);
  Tensor linear(const Tensor& x, const Weight& w, Precision with);
  void tap(std::string_view name, std::int64_t layer, const Tensor& value) const {
    if (taps && !ops.planning()) taps(name, layer, value);
  }
};

struct StepLimits {
  std::int64_t max_tokens = 256;    // rows of a step
  std::int64_t max_samples = 8;     // rows with logits
  std::int64_t max_context = 4096;  // tokens of a sequence
  KvCacheType cache_type = KvCacheType::automatic;
};

struct StepOutput {
  Tensor logits;     // [samples, vocab] f32, valid until the next step
  Tensor first_bad;  // [tokens] i32: Guard::kClean, or the place whose output was first not finite
  Tensor rms;        // [places, tokens] f32: root mean square of the residual stream behind each GuardPlace
};

// Runs steps of one model on one device. Plans all memory when it is made.
class StepRunner {
 public:
  StepRunner(const Model& model, const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool, Precision precision,
             const StepLimits& limits);

  // The cache that steps read and write: `layout` with its pool's address.
  void use_cache(const KvLayout& layout) { cache_ = layout; }
  StepOutput run(const Batch& batch);

  const StepLimits& limits() const { return limits_; }
  Precision precision() const { return precision_; }
  const ModelConfig& config() const { return model_.config; }
  // Of the cache that steps expect; not placed anywhere yet.
  KvLayout cache_layout() const { return kv_layout(model_.config, precision_, limits_.cache_type); }
  // What a step of `tokens` rows, one of them sampled, does at a context of `context` tokens, op by op, and which kernels do it. At most
  // the limits.
  std::vector<Ops::Call> plan(std::int64_t tokens, std::int64_t context);
  // Intermediate tensors and kernel workspace.
  std::int64_t planned_bytes() const { return arena_.size_bytes() + ops_.workspace_bytes(); }

  Taps taps;
  Fault fault;
  Ops& ops() { return ops_; }

 private:
  std::vector<Ops::Call> plan_step(std::int64_t tokens, std::int64_t samples, std::int64_t context);
  StepOutput forward(const Batch& batch, std::int64_t max_context);
  void inject_fault(std::int32_t place, const Tensor& value) const;

  const Model& model_;
  Precision precision_;
  StepLimits limits_;
  Ops ops_;
  Arena arena_;
  KvLayout cache_;
  Buffer frequencies_storage_;
  Tensor frequencies_;  // [rope / 2] f32
};

}  // namespace reckoner
