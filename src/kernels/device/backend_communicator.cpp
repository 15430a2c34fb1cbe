#include "kernels/device/backend_communicator.h"

#include <mutex>
#include <thread>
#include <utility>

#include "parallel/meeting_point.h"

namespace reckoner {
namespace {

// The links of all ranks, so that any rank can end them all: a device that waits for another one's would never return.
class Links {
 public:
  Links(const DeviceBackend& backend, const std::vector<int>& devices, const std::vector<RankLink>& links)
      : meeting(static_cast<int>(devices.size())), backend_(backend) {
    for (std::size_t rank = 0; rank < devices.size(); ++rank) ends_.push_back(std::make_unique<End>(devices[rank], links[rank]));
  }
  ~Links() {
    for (std::thread& thread : ending_) thread.join();
    for (const std::unique_ptr<End>& end : ends_) disconnect(*end);
  }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  Status all_reduce(int rank, Stream stream, const Tensor& values) {
    End& end = *ends_[static_cast<std::size_t>(rank)];
    const std::lock_guard lock(end.mutex);
    if (end.link == nullptr) return {};  // cancelled
    return backend_.all_reduce(end.device, end.link, stream, values.data, values.shape.elements());
  }
  // Ends all links, without waiting for that: what the devices do for one stops at once, but a link goes only after the recorded steps that
  // use it, which their runners still have.
  void begin_to_disconnect() {
    const std::lock_guard lock(mutex_);
    if (!ending_.empty()) return;
    for (const std::unique_ptr<End>& end : ends_) ending_.emplace_back([this, one = end.get()] { disconnect(*one); });
  }

  MeetingPoint meeting;  // on the host

 private:
  struct End {
    End(int of, RankLink at) : device(of), link(at) {}
    const int device;
    std::mutex mutex;  // held while work is put on a stream, so that a link is not ended in between
    RankLink link;     // nullptr: ended
  };
  void disconnect(End& end) {
    RankLink link = nullptr;
    {
      const std::lock_guard lock(end.mutex);
      link = std::exchange(end.link, nullptr);
    }
    if (link != nullptr) static_cast<void>(backend_.disconnect(end.device, link));
  }

  const DeviceBackend& backend_;
  std::vector<std::unique_ptr<End>> ends_;
  std::mutex mutex_;
  std::vector<std::thread> ending_;
};

class BackendCommunicator final : public Communicator {
 public:
  BackendCommunicator(std::shared_ptr<Links> links, Rank rank) : links_(std::move(links)), rank_(rank) {}

  Rank rank() const override { return rank_; }
  void all_reduce(const Tensor& values, Stream stream) override {
    CHECK(values.dtype == DType::f32);
    Status put = links_->all_reduce(rank_.index, stream, values);
    if (!put.ok()) cancel(std::move(put).error());
  }
  Vote agree(Vote own) override { return links_->meeting.meet(own); }
  void cancel(Error why) override {
    links_->meeting.close(std::move(why));
    links_->begin_to_disconnect();
  }
  Status status() const override { return links_->meeting.status(); }

 private:
  const std::shared_ptr<Links> links_;
  const Rank rank_;
};

}  // namespace

Result<ConnectedRanks> connect_ranks(const DeviceBackend& backend, const std::vector<int>& devices) {
  const RankLinks connected = TRY(backend.connect(devices));
  const auto links = std::make_shared<Links>(backend, devices, connected.links);
  const auto count = static_cast<int>(devices.size());
  ConnectedRanks ranks{.communicators = {}, .library = connected.library};
  for (int rank = 0; rank < count; ++rank) ranks.communicators.push_back(std::make_unique<BackendCommunicator>(links, Rank{rank, count}));
  return ranks;
}

}  // namespace reckoner
