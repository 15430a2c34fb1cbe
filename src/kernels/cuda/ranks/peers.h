// Sums over GPUs of one process that can reach each other's memory, for small tensors, whose time is the way there and not their bytes:
// each GPU writes its values straight into the others' memory, and adds what it finds in its own in the order of the ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tensor/device_memory.h"

namespace reckoner {

// What the ranks of one connection have together: their inboxes, and a word that ends all waiting.
class PeerGroup;

// The most values of one sum: 512 KiB of a rank's inbox for each other rank, twice.
inline constexpr std::int64_t kMostPeerValues = 1 << 16;
inline constexpr int kMostPeers = 16;

// Opens the way between all of them, then sums values of several sizes whose sums are known. Error: which two cannot reach each other, or
// what came back wrong, or that nothing came back at all, as on boards whose IOMMU is in the way. Nothing is left behind then.
Result<std::shared_ptr<PeerGroup>> connect_peers(const std::vector<int>& devices);

// Puts the sum of `count` <= kMostPeerValues values over all ranks into `values`, on the stream of the rank's device, the same bits on
// every rank. Every rank must do so, in the same order.
void add_over_peers(PeerGroup& group, int rank, Stream stream, float* values, std::int64_t count);

// Whoever waits for another rank waits no longer, now or later; sums are not formed then.
void stop_waiting(PeerGroup& group);

}  // namespace reckoner
