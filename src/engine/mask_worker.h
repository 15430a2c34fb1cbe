// MaskWorker: a thread that fills the masks of constraints while the engine's own thread runs the model.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/constraint.h"

namespace reckoner {

class MaskWorker {
 public:
  struct Job {
    TokenConstraint* constraint = nullptr;
    std::span<std::uint32_t> bits;
  };

  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Begins with these jobs, which must live until wait() returns. The thread starts with the first jobs there are.
  void start(std::vector<Job> jobs);
  // Returns when all jobs are done; the calling thread does its part.
  void wait();

 private:
  void serve();
  // Does one job, if any is left that nobody has begun.
  bool do_one(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  std::size_t begun_ = 0;
  std::size_t done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace reckoner
