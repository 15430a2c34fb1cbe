// What a block sees of a step, and who runs steps.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/device_step.h"
#include "model/loader.h"
#include "model/step.h"
#include "parallel/communicator.h"

namespace reckoner {

// Memory for intermediate tensors: planned once, then handed out the same way in each step. Nothing is allocated while serving.
class Arena {
 public:
  // nullptr: of the host.
  explicit Arena(DeviceMemory* memory = nullptr) : memory_(memory) {}
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
  void reserve() { buffer_ = Buffer(peak_, memory_); }
  std::int64_t size_bytes() const { return buffer_.size_bytes(); }

 private:
  DeviceMemory* memory_;
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
  Communicator* ranks;  // nullptr: there is no other
  Precision precision;
  std::int64_t max_context;
  Tensor cosine;  // [tokens, rope / 2] f32
  Tensor sine;    // [tokens, rope / 2] f32

  std::int64_t tokens() const { return batch.tokens.dim(0); }
  // Whether ops that are several others in one go are worth calling, where they are served: reading weights is what takes long.
  static constexpr std::int64_t kFewTokens = 128;
  bool is_few() const { return tokens() <= kFewTokens; }
  // y = x w^T in new scratch memory: [rows of x, w.rows]
  Tensor linear(const Tensor& x, const Weight& w);
  Tensor linear(const Tensor& x, const Weight& w, Precision with);
  // x becomes the sum of all ranks' x.
  void add_ranks(const Tensor& x) const;
  // What runs from here on, for who looks into steps.
  void enter(std::string_view block) { ops.place.block = block; }
  void tap(std::string_view name, std::int64_t layer, const Tensor& value) const {
    if (taps && !ops.planning()) taps(name, layer, value);
  }
};

// Whether a step of a kind that came before may be recorded and replayed (Graphs). Ranks must do the same, so that one that is looked into
// keeps the others from it.
enum class Recording : std::uint8_t { allowed, off };

// Runs steps of one model, or of a rank's share of it, on one device. Plans all memory when it is made.
class StepRunner {
 public:
  // On the processor.
  StepRunner(const Model& model, const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool, Precision precision,
             const StepLimits& limits)
      : StepRunner(model, model.weights, {.info = device, .catalogue = catalogue}, pool, precision, limits) {}
  // `weights` are the model's, where the device reads them. Look at status() before the first step.
  StepRunner(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
             const StepLimits& limits);

  // Error: no kernel for something that the model needs, or the device failed or had too little memory. Never on the processor.
  Status status() const;
  // Of the device that steps run on; nullptr: the host's.
  DeviceMemory* memory() const { return memory_; }

  // The cache that steps read and write: `layout` with its pool's address, in the device's memory.
  void use_cache(const KvLayout& layout);
  // The batch and the output are in the host's memory. Of a share of a model the logits are those of its part of the vocabulary.
  StepOutput run(const Batch& batch, Recording recording = Recording::allowed);
  // Whether somebody looks into the steps: then they are not recorded.
  bool is_watched() const { return static_cast<bool>(taps) || ops_.probe != nullptr; }
  bool records_steps() const { return graphs_ == Graphs::on && recording_failure_.empty(); }
  // Steps that are recorded so far, and why recording was given up, if it was.
  std::int64_t recorded_steps() const { return recorded_steps_; }
  const std::string& recording_failure() const { return recording_failure_; }
  // How often a step of so many rows was a candidate for recording; and forgetting all that, with what is recorded.
  std::int64_t recordable_steps(std::int64_t rows) const;
  void forget_recorded();

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
  StepOutput run_on_device(const Batch& batch, Recording recording);
  StepOutput enqueue(const Batch& on_device);
  StepOutput enqueue_recorded(const Batch& on_device);
  bool record(DeviceStep::Recorded& recorded, const Batch& on_device);
  std::int64_t output_bytes() const;
  Taps host_taps();
  void place_frequencies(const std::vector<float>& frequencies);
  void mark_clean(const Tensor& first_bad) const;
  void inject_fault(std::int32_t place, const Tensor& value) const;

  const Model& model_;
  const ModelWeights& weights_;
  Precision precision_;
  StepLimits limits_;
  DeviceMemory* memory_;
  Communicator* ranks_;
  Graphs graphs_;
  Ops ops_;
  Arena arena_;
  KvLayout cache_;
  std::unique_ptr<DeviceStep> step_;  // on a device
  std::int64_t recorded_steps_ = 0;
  std::string recording_failure_;
  Buffer frequencies_storage_;
  Tensor frequencies_;  // [rope / 2] f32
};

}  // namespace reckoner
