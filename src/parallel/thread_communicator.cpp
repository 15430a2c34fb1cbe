#include "parallel/thread_communicator.h"

#include <algorithm>

#include "parallel/meeting_point.h"

namespace reckoner {
namespace {

struct Shared {
  explicit Shared(int ranks) : begin(ranks), end(ranks), values(static_cast<std::size_t>(ranks)) {}

  MeetingPoint begin;  // closed by cancel()
  MeetingPoint end;    // never closed: who is past `begin` comes here without waiting for anything else
  std::vector<Tensor> values;
};

// Elements [first, first + count) of every rank become their sum.
void sum_part(const std::vector<Tensor>& values, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  float sums[kBlock];
  for (std::int64_t at = first; at < first + count; at += kBlock) {
    const std::int64_t width = std::min(kBlock, first + count - at);
    std::copy_n(values.front().f32() + at, width, sums);
    for (std::size_t rank = 1; rank < values.size(); ++rank) {
      const float* const part = values[rank].f32() + at;
      for (std::int64_t i = 0; i < width; ++i) sums[i] += part[i];
    }
    for (const Tensor& of_rank : values) std::copy_n(sums, width, of_rank.f32() + at);
  }
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Shared> shared, Rank rank) : shared_(std::move(shared)), rank_(rank) {}

  Rank rank() const override { return rank_; }
  void all_reduce(const Tensor& values, Stream) override {
    shared_->values[static_cast<std::size_t>(rank_.index)] = values;
    if (shared_->begin.meet() == Vote::no) return;
    CHECK(values.shape == shared_->values.front().shape, "ranks add up tensors of different shapes");
    // Each rank does a part of the sum, for all.
    const Range part = nearly_even_part(values.shape.elements(), rank_);
    sum_part(shared_->values, part.first, part.count);
    shared_->end.meet();
  }
  Vote agree(Vote own) override { return shared_->begin.meet(own); }
  void cancel(Error why) override { shared_->begin.close(std::move(why)); }
  Status status() const override { return shared_->begin.status(); }

 private:
  const std::shared_ptr<Shared> shared_;
  const Rank rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks) {
  const auto shared = std::make_shared<Shared>(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<ThreadCommunicator>(shared, Rank{rank, ranks}));
  return all;
}

}  // namespace reckoner
