#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace reckoner {
namespace {

TEST(ThreadPool, RunsEveryItemOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t items : {0, 1, 2, 7, 1000}) {
      std::vector<int> count(static_cast<std::size_t>(items), 0);
      pool.parallel_for(items, [&](std::int64_t item, int thread) {
        EXPECT_LT(thread, threads);
        ++count[static_cast<std::size_t>(item)];
      });
      EXPECT_EQ(count, std::vector<int>(static_cast<std::size_t>(items), 1));
    }
  }
}

TEST(ThreadPool, LoopsFollowEachOtherAndWritesAreVisible) {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(64, [&](std::int64_t item, int) { values[static_cast<std::size_t>(item)] += item; });
  }
  for (std::int64_t item = 0; item < 64; ++item) EXPECT_EQ(values[static_cast<std::size_t>(item)], 2000 * item);
}

TEST(ThreadPool, SleepingWorkersWake) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the polling time
    std::atomic<int> sum = 0;
    pool.parallel_for(100, [&](std::int64_t, int) { ++sum; });
    EXPECT_EQ(sum, 100);
  }
}

TEST(UsableCores, IsAtLeastOneAndAtMostTheHardware) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace reckoner
