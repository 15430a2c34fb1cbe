// Writing one shard: matrices are packed in pieces of a few rows, by all threads.
#pragma once

#include <atomic>
#include <functional>

#include "base/threads.h"
#include "convert/output_file.h"
#include "convert/plan.h"

namespace reckoner {

struct ShardWork {
  const Checkpoint& checkpoint;
  const QuantisePlan& plan;
  ThreadPool& pool;
  std::function<void(std::int64_t source_bytes)> done;  // from any thread, with what was read since the last call
  std::function<bool()> stop;                           // asked before each piece, from any thread
};

// What a unit reads.
std::int64_t source_bytes(const OutputUnit& unit);

// Everything but the header. Returns false when it was stopped.
Result<bool> write_shard(const ShardWork& work, const OutputShard& shard, const OutputFile& file);

}  // namespace reckoner
