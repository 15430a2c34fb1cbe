// A rank's share of a model: a Model with fewer heads and narrower layers, on which a StepRunner works as on any other. The ranks' results
// behind attention and behind the feed-forward part have to be added up (StepRunner does, with a Communicator).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/loader.h"

namespace reckoner {

// Error: a tensor that cannot be divided; names it, what does not divide it, and the numbers of ranks that can.
Status check_split(const Model& model, int ranks);

// The share of a rank, which refers to `whole` and its bytes. Columns are not copied together yet: upload_weights() does that on the way to
// a device, and read_share() for the host. Error: as check_split.
Result<std::unique_ptr<Model>> share_of(const Model& whole, Rank rank);

// For steps on the host: copies columns together, brings the rest into memory and checks every block scale. As read_weights.
Status read_share(Model& share, ThreadPool& pool, const std::function<void(std::int64_t done, std::int64_t total)>& progress);

// What read_share() takes beside the whole model's bytes.
std::int64_t copied_bytes(const Model& share);

// Which of the logits a rank computes.
Range vocabulary_part(const Model& share);

}  // namespace reckoner
