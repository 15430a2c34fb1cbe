#include "kernels/cuda/ranks/peers.h"

#include <chrono>
#include <string>
#include <thread>

#include "kernels/cuda/common/launch.cuh"

namespace reckoner {
namespace {

using cuda::let_next_begin;
using cuda::wait_for_previous;

// Two values, each followed by the number of the sum that it belongs to. Eight bytes arrive together, so whoever finds the number has the
// value: nothing has to be ordered, and nothing cleared.
using Pair = uint4;
constexpr std::int64_t kMostPairs = kMostPeerValues / 2;
constexpr int kThreads = 256;

// A rank's view. An inbox is [2][ranks][kMostPairs]: sums use its halves in turn. A rank that writes the next but one has got the values
// of the next from this rank, which had then finished with this one.
struct Peers {
  Pair* inboxes[kMostPeers];
  int rank, ranks;
  std::uint32_t* number;         // of the last sum; 0 before the first
  std::uint32_t* blocks_done;    // of the sum that is being formed
  const std::uint32_t* stopped;  // in the host's memory
};

__device__ Pair* place_of(const Peers& peers, int inbox, std::uint32_t number, int from, std::int64_t pair) {
  return peers.inboxes[inbox] + (static_cast<std::int64_t>(number % 2) * peers.ranks + from) * kMostPairs + pair;
}

// The pair when it is there; zeros when waiting was stopped.
__device__ float2 wait_for_pair(const Pair* from, std::uint32_t number, const volatile std::uint32_t* stopped) {
  constexpr int kLooksBetween = 4096;  // at the host's word, which is far away
  for (int looks = 1;; ++looks) {
    const Pair pair = cuda::load_of_others(from);
    if (pair.y == number && pair.w == number) return make_float2(__uint_as_float(pair.x), __uint_as_float(pair.z));
    if (looks % kLooksBetween == 0 && *stopped != 0) return make_float2(0, 0);
  }
}

// A pair a thread. Each block sends all that it has before it waits, so no block waits for one that cannot start yet.
__global__ void __launch_bounds__(kThreads) add_over_peers_kernel(Peers peers, float* values, int count) {
  let_next_begin();
  wait_for_previous();
  const std::uint32_t number = *static_cast<volatile std::uint32_t*>(peers.number) + 1;
  const int pair = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x), at = 2 * pair;
  if (at < count) {
    const float2 own = make_float2(values[at], at + 1 < count ? values[at + 1] : 0);
    for (int other = 1; other < peers.ranks; ++other) {
      const int to = (peers.rank + other) % peers.ranks;
      cuda::store_for_others(place_of(peers, to, number, peers.rank, pair),
                             make_uint4(__float_as_uint(own.x), number, __float_as_uint(own.y), number));
    }
    float2 sum = make_float2(0, 0);
    for (int from = 0; from < peers.ranks; ++from) {
      const float2 term = from == peers.rank ? own : wait_for_pair(place_of(peers, peers.rank, number, from, pair), number, peers.stopped);
      sum = from == 0 ? term : make_float2(sum.x + term.x, sum.y + term.y);
    }
    values[at] = sum.x;
    if (at + 1 < count) values[at + 1] = sum.y;
  }
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(peers.blocks_done, 1u) != gridDim.x - 1) return;
  *peers.blocks_done = 0;
  *peers.number = number;
}

constexpr const char* kRemedy = "nothing: NCCL adds up what small sums would have";

Status checked(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // this is its report
  return Error{what + ": " + cudaGetErrorString(code), kRemedy};
}

std::string name(int device) { return "cuda:" + std::to_string(device); }

}  // namespace

class PeerGroup {
 public:
  explicit PeerGroup(const std::vector<int>& devices) : devices_(devices), ends_(devices.size()) {}
  ~PeerGroup() {
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
      static_cast<void>(cudaSetDevice(devices_[rank]));
      static_cast<void>(cudaFree(ends_[rank].inbox));
      static_cast<void>(cudaFree(ends_[rank].counters));
    }
    static_cast<void>(cudaFreeHost(stopped_));
  }
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  Status open() {
    if (ranks() > kMostPeers) return Error{"there are more than " + std::to_string(kMostPeers) + " GPUs", kRemedy};
    for (const int from : devices_) {
      for (const int to : devices_) TRY(open_way(from, to));
    }
    void* word = nullptr;
    TRY(checked(cudaHostAlloc(&word, sizeof(std::uint32_t), cudaHostAllocPortable | cudaHostAllocMapped), "allocating pinned memory"));
    stopped_ = static_cast<std::uint32_t*>(word);
    *stopped_ = 0;
    for (int rank = 0; rank < ranks(); ++rank) TRY(take_memory(rank));
    return {};
  }

  void add(int rank, cudaStream_t stream, float* values, std::int64_t count) const {
    Peers peers{.rank = rank, .ranks = ranks(), .number = end(rank).counters, .blocks_done = end(rank).counters + 1, .stopped = stopped_};
    for (int other = 0; other < ranks(); ++other) peers.inboxes[other] = end(other).inbox;
    cuda::launch(add_over_peers_kernel, cuda::blocks_for(count, 2 * kThreads), kThreads, 0, stream, peers, values, static_cast<int>(count));
  }
  void stop() { *static_cast<volatile std::uint32_t*>(stopped_) = 1; }

  int ranks() const { return static_cast<int>(devices_.size()); }
  int device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }

 private:
  struct End {
    Pair* inbox = nullptr;
    std::uint32_t* counters = nullptr;  // number, blocks_done
  };
  const End& end(int rank) const { return ends_[static_cast<std::size_t>(rank)]; }

  static Status open_way(int from, int to) {
    if (from == to) return {};
    int can = 0;
    TRY(checked(cudaDeviceCanAccessPeer(&can, from, to), "asking whether GPUs reach each other"));
    if (can == 0) return Error{name(from) + " cannot reach the memory of " + name(to), kRemedy};
    TRY(checked(cudaSetDevice(from), "choosing a device"));
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
      return {};
    }
    return checked(code, "opening the way from " + name(from) + " to " + name(to));
  }

  Status take_memory(int rank) {
    const std::size_t bytes = std::size_t{2} * devices_.size() * kMostPairs * sizeof(Pair);
    End& end = ends_[static_cast<std::size_t>(rank)];
    TRY(checked(cudaSetDevice(device(rank)), "choosing a device"));
    TRY(checked(cudaMalloc(&end.inbox, bytes), "allocating an inbox"));
    TRY(checked(cudaMalloc(&end.counters, 2 * sizeof(std::uint32_t)), "allocating counters"));
    TRY(checked(cudaMemset(end.inbox, 0, bytes), "clearing an inbox"));
    TRY(checked(cudaMemset(end.counters, 0, 2 * sizeof(std::uint32_t)), "clearing counters"));
    return checked(cudaDeviceSynchronize(), "clearing an inbox");
  }

  const std::vector<int> devices_;
  std::vector<End> ends_;
  std::uint32_t* stopped_ = nullptr;
};

namespace {

// Values whose sums are exact in any order: small whole numbers, and others at each rank, place and round.
float trial_value(int rank, std::int64_t at, int round) { return static_cast<float>((at * 7 + rank * 131 + round * 17) % 1021); }

// Sums tried on all ranks at once, as a step would do them.
class Trial {
 public:
  explicit Trial(PeerGroup& group) : group_(group), ends_(static_cast<std::size_t>(group.ranks())) {}
  ~Trial() {
    group_.stop();  // or a stream might never end
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      End& end = ends_[static_cast<std::size_t>(rank)];
      static_cast<void>(cudaSetDevice(group_.device(rank)));
      if (end.stream != nullptr) static_cast<void>(cudaStreamSynchronize(end.stream));
      if (end.stream != nullptr) static_cast<void>(cudaStreamDestroy(end.stream));
      static_cast<void>(cudaFree(end.values));
    }
    static_cast<void>(cudaGetLastError());
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  Status run() {
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      End& end = ends_[static_cast<std::size_t>(rank)];
      TRY(checked(cudaSetDevice(group_.device(rank)), "choosing a device"));
      TRY(checked(cudaStreamCreateWithFlags(&end.stream, cudaStreamNonBlocking), "making a stream"));
      TRY(checked(cudaMalloc(&end.values, kMostPeerValues * sizeof(float)), "allocating values"));
    }
    int round = 0;
    for (const std::int64_t count : {std::int64_t{1}, kMostPeerValues, std::int64_t{6145}, std::int64_t{6145}, std::int64_t{64}}) {
      TRY(one_sum(count, round++));
    }
    return {};
  }

 private:
  struct End {
    cudaStream_t stream = nullptr;
    float* values = nullptr;
  };

  Status one_sum(std::int64_t count, int round) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      for (std::int64_t at = 0; at < count; ++at) values[static_cast<std::size_t>(at)] = trial_value(rank, at, round);
      const End& end = ends_[static_cast<std::size_t>(rank)];
      TRY(checked(cudaSetDevice(group_.device(rank)), "choosing a device"));
      TRY(checked(cudaMemcpy(end.values, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "copying"));
    }
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      const End& end = ends_[static_cast<std::size_t>(rank)];
      TRY(checked(cudaSetDevice(group_.device(rank)), "choosing a device"));
      group_.add(rank, end.stream, end.values, count);
      TRY(checked(cudaGetLastError(), "launching a sum"));
    }
    for (int rank = 0; rank < group_.ranks(); ++rank) TRY(compare(rank, count, round));
    return {};
  }

  Status compare(int rank, std::int64_t count, int round) {
    const End& end = ends_[static_cast<std::size_t>(rank)];
    TRY(wait(rank));
    std::vector<float> values(static_cast<std::size_t>(count));
    TRY(checked(cudaMemcpy(values.data(), end.values, values.size() * sizeof(float), cudaMemcpyDeviceToHost), "copying"));
    for (std::int64_t at = 0; at < count; ++at) {
      float expected = 0;
      for (int other = 0; other < group_.ranks(); ++other) expected += trial_value(other, at, round);
      const float found = values[static_cast<std::size_t>(at)];
      if (found != expected) {
        return Error{"a sum of " + std::to_string(count) + " values on " + name(group_.device(rank)) + " is " + std::to_string(found) +
                         " at " + std::to_string(at) + " where " + std::to_string(expected) + " was expected",
                     kRemedy};
      }
    }
    return {};
  }

  Status wait(int rank) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kPatience = std::chrono::seconds(5);
    const Clock::time_point start = Clock::now();
    TRY(checked(cudaSetDevice(group_.device(rank)), "choosing a device"));
    while (true) {
      const cudaError_t code = cudaStreamQuery(ends_[static_cast<std::size_t>(rank)].stream);
      if (code != cudaErrorNotReady) return checked(code, "forming a sum");
      if (Clock::now() - start > kPatience) {
        return Error{name(group_.device(rank)) + " saw nothing of what the others wrote into its memory for 5 seconds", kRemedy};
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  PeerGroup& group_;
  std::vector<End> ends_;
};

}  // namespace

Result<std::shared_ptr<PeerGroup>> connect_peers(const std::vector<int>& devices) {
  {
    PeerGroup tried(devices);
    TRY(tried.open());
    TRY(Trial(tried).run());
  }
  auto group = std::make_shared<PeerGroup>(devices);  // that nobody stopped
  TRY(group->open());
  return group;
}

void add_over_peers(PeerGroup& group, int rank, Stream stream, float* values, std::int64_t count) {
  group.add(rank, static_cast<cudaStream_t>(stream), values, count);
}

void stop_waiting(PeerGroup& group) { group.stop(); }

}  // namespace reckoner
