#include "engine/mask_worker.h"

#include "base/check.h"

namespace reckoner {

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskWorker::start(std::vector<Job> jobs) {
  if (jobs.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    CHECK(done_ == jobs_.size(), "wait() comes before the next jobs");
    jobs_ = std::move(jobs);
    begun_ = done_ = 0;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
}

bool MaskWorker::do_one(std::unique_lock<std::mutex>& lock) {
  if (begun_ == jobs_.size()) return false;
  const Job job = jobs_[begun_++];
  lock.unlock();
  job.constraint->compute_mask(job.bits);
  lock.lock();
  if (++done_ == jobs_.size()) changed_.notify_all();
  return true;
}

void MaskWorker::wait() {
  std::unique_lock lock(mutex_);
  while (do_one(lock)) {}
  changed_.wait(lock, [this] { return done_ == jobs_.size(); });
}

void MaskWorker::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || begun_ < jobs_.size(); });
    if (ending_) return;
    do_one(lock);
  }
}

}  // namespace reckoner
