#include "engine/tensor_parallel_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "model/share_of.h"

namespace reckoner {
namespace {

// Threads of a rank: on a device there is little to do for them.
int threads_of(const RankParts& parts, int all) {
  if (parts.device.memory != nullptr) return 1;
  const Range part = nearly_even_part(all, parts.communicator->rank());
  return static_cast<int>(std::max<std::int64_t>(1, part.count));
}

}  // namespace

struct TensorParallelModel::OneRank {
  OneRank(RankParts of, int threads) : parts(std::move(of)), pool(threads), vocabulary(vocabulary_part(*parts.share)) {
    parts.device.ranks = parts.communicator.get();
  }

  RankParts parts;
  ThreadPool pool;
  Range vocabulary;  // of its logits
  // The rank's pages, but for the first rank, whose pages are the engine's.
  Buffer cache;
  const std::byte* placed_with = nullptr;  // where the first rank's pages were when these were taken
  std::unique_ptr<StepRunner> runner;
  StepOutput output;
};

TensorParallelModel::TensorParallelModel(std::vector<RankParts> parts, ThreadPool& pool, Precision precision, const StepLimits& limits)
    : pool_(pool), vocab_(parts.front().share->config.vocab_size), threads_(static_cast<int>(parts.size())) {
  for (RankParts& of_rank : parts) {
    const int threads = threads_of(of_rank, pool.threads());
    ranks_.push_back(std::make_unique<OneRank>(std::move(of_rank), threads));
  }
  // Planning every size of a step takes a while: each rank does its own.
  threads_.run([&](int index) {
    OneRank& rank = *ranks_[static_cast<std::size_t>(index)];
    rank.runner = std::make_unique<StepRunner>(*rank.parts.share, *rank.parts.weights, rank.parts.device, rank.pool, precision, limits);
  });
  logits_ = Buffer(limits.max_samples * vocab_ * size_bytes(DType::f32));
}

TensorParallelModel::~TensorParallelModel() = default;

KvLayout TensorParallelModel::cache_layout() const { return ranks_.front()->runner->cache_layout(); }
DeviceMemory* TensorParallelModel::memory() { return ranks_.front()->runner->memory(); }
StepRunner* TensorParallelModel::runner() { return ranks_.front()->runner.get(); }
Communicator& TensorParallelModel::communicator(int rank) { return *ranks_[static_cast<std::size_t>(rank)]->parts.communicator; }

void TensorParallelModel::use_cache(const KvLayout& placed, std::int64_t pages) {
  const std::vector<CacheView>& views = placed.latent.empty() ? placed.keys : placed.latent;
  const std::byte* const base = views.front().base;
  ranks_.front()->runner->use_cache(placed);
  for (std::size_t index = 1; index < ranks_.size(); ++index) {
    OneRank& rank = *ranks_[index];
    KvLayout layout = rank.runner->cache_layout();
    const std::int64_t bytes = layout.page_bytes * pages;
    if (rank.placed_with == base && rank.cache.size_bytes() == bytes) continue;
    rank.cache = {};
    rank.cache = Buffer(bytes, rank.runner->memory());
    rank.placed_with = base;
    place_at(layout, rank.cache.data());
    rank.runner->use_cache(layout);
  }
}

Status TensorParallelModel::status() const {
  for (const auto& rank : ranks_) {
    const Status own = rank->runner->status();
    if (!own.ok()) return Error{fmt::format("{}: {}", rank->parts.name, own.error().what), own.error().remedy};
  }
  return ranks_.front()->parts.communicator->status();
}

// Planning anew (StepRunner::plan) makes a runner forget what it recorded: then all do, so that they record at the same time again.
void TensorParallelModel::record_alike(std::int64_t rows) {
  const std::int64_t of_first = ranks_.front()->runner->recordable_steps(rows);
  const bool alike =
      std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return rank->runner->recordable_steps(rows) == of_first; });
  if (alike) return;
  for (const auto& rank : ranks_) rank->runner->forget_recorded();
}

void TensorParallelModel::run_rank(OneRank& rank, const Batch& batch, const Fault& fault) {
  rank.runner->fault = fault;
  rank.output = rank.runner->run(batch, runner()->is_watched() ? Recording::off : Recording::allowed);
  if (!rank.output.error.empty()) {
    // Whoever is first is the cause; the others only stop waiting.
    rank.parts.communicator->cancel({fmt::format("{}: {}", rank.parts.name, rank.output.error)});
    return;
  }
  for (std::int64_t sample = 0; sample < batch.sample_rows.dim(0); ++sample) {
    std::copy_n(rank.output.logits.f32() + sample * rank.vocabulary.count, rank.vocabulary.count,
                logits_.tensor(DType::f32, {sample + 1, vocab_}).f32() + sample * vocab_ + rank.vocabulary.first);
  }
}

StepOutput TensorParallelModel::run(const Batch& batch, const Fault& fault) {
  const Tensor logits = logits_.tensor(DType::f32, {batch.sample_rows.dim(0), vocab_});
  record_alike(batch.tokens.dim(0));
  threads_.run([&](int index) { run_rank(*ranks_[static_cast<std::size_t>(index)], batch, fault); });
  StepOutput output = ranks_.front()->output;
  output.logits = logits;
  if (const Status together = ranks_.front()->parts.communicator->status(); !together.ok()) {
    output.error = together.error().what;
    std::fill_n(logits.f32(), logits.shape.elements(), std::numeric_limits<float>::quiet_NaN());
  }
  return output;
}

}  // namespace reckoner
