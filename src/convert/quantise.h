// Quantising: from a checkpoint to another one in a published layout, shard by shard, in bounded memory.
#pragma once

#include <filesystem>
#include <functional>

#include "base/threads.h"
#include "convert/plan.h"

namespace reckoner {

// The file in the output folder by which a second run of the same command knows its own work. It stays there in the end.
inline constexpr const char* kQuantiseRecord = "reckoner-quantize.json";

struct QuantiseEvents {
  // Now and then, from the calling thread: bytes of the source's tensors that are done, of those that were left to do at the start.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  // Asked often; once true, work stops with what is finished kept.
  std::function<bool()> interrupted = {};
};

struct QuantiseReport {
  bool interrupted = false;
  std::int64_t shards_kept = 0;   // from an earlier run
  std::int64_t source_bytes = 0;  // read in this run
};

// Whether `out` can take the output of this plan: it is new, empty, or holds the beginning of the same work. Creates it. Errors: it is the
// model's own folder or inside it; it holds something else; there is not enough space.
Status prepare_output(const Model& model, const QuantisePlan& plan, const std::filesystem::path& out);

// Writes the shards that are not there yet, then the files beside them, index and config.json last: nothing has its final name before it
// is whole, and nothing can be loaded before everything is there. Errors: a value that is not finite; the disk is full.
Result<QuantiseReport> quantise(const Model& model, const QuantisePlan& plan, const std::filesystem::path& out, ThreadPool& pool,
                                const QuantiseEvents& events);

}  // namespace reckoner
