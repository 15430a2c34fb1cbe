// Sums over all GPUs of this machine, as ranks form them twice a layer: recorded a hundred at a time, straight between the GPUs and over
// NCCL in turn.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/backend.h"

extern "C" const reckoner::DeviceBackend* reckoner_cuda_backend();

namespace reckoner {
namespace {

constexpr int kSums = 100;  // a recording

template <class T>
T value_or_end(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "cuda_ranks_bench: %s\n", result.error().message().c_str());
  std::exit(1);
}
void expect(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cuda_ranks_bench: %s\n", status.error().message().c_str());
  std::exit(1);
}

// All ranks, connected in one way.
class Ranks {
 public:
  Ranks(const DeviceBackend& backend, int count, const char* way) : backend_(backend), ends_(static_cast<std::size_t>(count)) {
    setenv("RECKONER_RANK_SUMS", way, 1);
    std::vector<int> devices;
    for (int rank = 0; rank < count; ++rank) devices.push_back(rank);
    const RankLinks links = value_or_end(backend.connect(devices));
    std::printf("%s\n", links.library.c_str());
    on_all([&](int rank, End& end) {
      end.link = links.links[static_cast<std::size_t>(rank)];
      end.stream = value_or_end(backend_.make_stream(rank));
      end.values = value_or_end(backend_.allocate(rank, kMostValues * 4));
      expect(backend_.fill(rank, end.stream, end.values, 0, kMostValues * 4));
      expect(backend_.synchronise(rank, end.stream));
    });
  }
  ~Ranks() {
    on_all([&](int rank, End& end) {
      expect(backend_.release(rank, end.values));
      expect(backend_.release_stream(rank, end.stream));
      expect(backend_.disconnect(rank, end.link));
    });
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Median microseconds of a sum.
  double time(std::int64_t count) {
    std::vector<DeviceGraph> graphs(ends_.size());
    on_all([&](int rank, End& end) {
      expect(backend_.all_reduce(rank, end.link, end.stream, end.values, count));
      expect(backend_.synchronise(rank, end.stream));
      expect(backend_.begin_capture(rank, end.stream));
      for (int i = 0; i < kSums; ++i) expect(backend_.all_reduce(rank, end.link, end.stream, end.values, count));
      graphs[static_cast<std::size_t>(rank)] = value_or_end(backend_.end_capture(rank, end.stream));
    });
    std::vector<double> took;
    for (int i = 0; i < 11; ++i) {
      const auto start = std::chrono::steady_clock::now();
      on_all([&](int rank, End& end) {
        expect(backend_.launch(rank, graphs[static_cast<std::size_t>(rank)], end.stream));
        expect(backend_.synchronise(rank, end.stream));
      });
      took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kSums);
    }
    on_all([&](int rank, End&) { expect(backend_.release_graph(rank, graphs[static_cast<std::size_t>(rank)])); });
    std::sort(took.begin(), took.end());
    return took[took.size() / 2];
  }

  static constexpr std::int64_t kMostValues = std::int64_t{6144} * 64;

 private:
  struct End {
    RankLink link = nullptr;
    Stream stream = nullptr;
    std::byte* values = nullptr;
  };
  template <class Body>
  void on_all(Body&& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) threads.emplace_back([&, rank] { body(static_cast<int>(rank), ends_[rank]); });
    for (std::thread& thread : threads) thread.join();
  }

  const DeviceBackend& backend_;
  std::vector<End> ends_;
};

int run() {
  const DeviceBackend& backend = *reckoner_cuda_backend();
  const auto count = static_cast<int>(value_or_end(backend.devices()).size());
  if (count < 2) {
    std::fprintf(stderr, "cuda_ranks_bench: takes two GPUs, here is %d\n", count);
    return 1;
  }
  Ranks straight(backend, count, "peers"), nccl(backend, count, "nccl");
  std::printf("\n%d GPUs, us a sum\n\n| values | straight | NCCL | ratio |\n|---|---|---|---|\n", count);
  for (const std::int64_t rows : {1, 2, 4, 8, 10, 64}) {
    const double ours = straight.time(rows * 6144), theirs = nccl.time(rows * 6144);
    std::printf("| %ld x 6144 | %.1f | %.1f | %.2f |\n", static_cast<long>(rows), ours, theirs, theirs / ours);
  }
  return 0;
}

}  // namespace
}  // namespace reckoner

int main() { return reckoner::run(); }
