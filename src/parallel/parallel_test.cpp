// What ranks share, how they add up and how they part.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "parallel/meeting_point.h"
#include "parallel/rank_threads.h"
#include "parallel/thread_communicator.h"

namespace reckoner {
namespace {

using Vote = Communicator::Vote;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

TEST(Share, NearlyEvenPartsCoverEverythingOnce) {
  for (const std::int64_t total : {0, 1, 5, 7, 64, 154880}) {
    for (int count = 1; count <= 9; ++count) {
      std::int64_t next = 0;
      for (int rank = 0; rank < count; ++rank) {
        const Range part = nearly_even_part(total, {rank, count});
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.count, total / count);
        EXPECT_LE(part.count, (total + count - 1) / count);
        next += part.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(Share, KeyHeadsAreSharedWhereThereAreFewerThanRanks) {
  EXPECT_EQ(key_heads_part(8, {1, 2}), (Range{4, 4}));
  EXPECT_EQ(key_heads_part(8, {7, 8}), (Range{7, 1}));
  const std::int64_t heads_of_ranks[] = {0, 0, 0, 0, 1, 1, 1, 1};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(key_heads_part(2, {rank, 8}), (Range{heads_of_ranks[rank], 1})) << rank;
}

// What a rank brings to a sum: of all magnitudes, so that the order of adding shows.
float value_of(int rank, std::int64_t at, int round) {
  return std::ldexp(1.0f + 0.37f * static_cast<float>((at * 7 + rank * 3 + round) % 11), static_cast<int>((at + 5 * rank) % 24) - 12);
}

class Sums : public testing::TestWithParam<int> {};

TEST_P(Sums, AreThoseInTheOrderOfRanksBitByBit) {
  const int count = GetParam();
  Communicators ends = thread_communicators(count);
  RankThreads threads(count);
  int round = 0;
  for (const std::int64_t size : {1, 3, 255, 256, 257, 1000, 4099}) {
    for (int repeat = 0; repeat < 8; ++repeat, ++round) {
      std::vector<std::vector<float>> values(static_cast<std::size_t>(count));
      threads.run([&](int rank) {
        std::vector<float>& own = values[static_cast<std::size_t>(rank)];
        for (std::int64_t at = 0; at < size; ++at) own.push_back(value_of(rank, at, round));
        ends[static_cast<std::size_t>(rank)]->all_reduce(
            {.data = reinterpret_cast<std::byte*>(own.data()), .dtype = DType::f32, .shape = {size}}, nullptr);
      });
      for (std::int64_t at = 0; at < size; ++at) {
        float expected = value_of(0, at, round);
        for (int rank = 1; rank < count; ++rank) expected += value_of(rank, at, round);
        for (const std::vector<float>& of_rank : values) ASSERT_EQ(of_rank[static_cast<std::size_t>(at)], expected) << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Sums, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST(Communicator, AgreesOnlyWhenAllDo) {
  Communicators ends = thread_communicators(3);
  RankThreads threads(3);
  for (int against = -1; against < 3; ++against) {
    Vote results[3];
    threads.run([&](int rank) { results[rank] = ends[static_cast<std::size_t>(rank)]->agree(rank == against ? Vote::no : Vote::yes); });
    for (const Vote result : results) EXPECT_EQ(result, against < 0 ? Vote::yes : Vote::no) << against;
  }
}

TEST(Communicator, KnowsItsRank) {
  const Communicators ends = thread_communicators(2);
  EXPECT_EQ(ends[1]->rank().index, 1);
  EXPECT_EQ(ends[1]->rank().count, 2);
}

// One rank gives up at some time; the others must return, whatever they wait for.
TEST(Communicator, CancellingReleasesWhoWaits) {
  for (int round = 0; round < 50; ++round) {
    Communicators ends = thread_communicators(4);
    RankThreads threads(4);
    std::atomic<int> returned = 0;
    threads.run([&](int rank) {
      Communicator& end = *ends[static_cast<std::size_t>(rank)];
      std::vector<float> values(1000, 1.0f);
      const Tensor tensor{.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::f32, .shape = {1000}};
      for (int sum = 0; sum < 5; ++sum) {
        if (rank == 2 && sum == round % 5) end.cancel({"rank 2 is broken"});
        end.all_reduce(tensor, nullptr);
      }
      if (rank != 2) end.agree(Vote::yes);
      ++returned;
    });
    EXPECT_EQ(returned, 4);
    for (const auto& end : ends) {
      ASSERT_FALSE(end->status().ok());
      EXPECT_EQ(end->status().error().what, "rank 2 is broken");
      EXPECT_EQ(end->agree(Vote::yes), Vote::no) << "nobody waits afterwards";
    }
  }
}

TEST(Communicator, TheFirstReasonStays) {
  const Communicators ends = thread_communicators(2);
  EXPECT_TRUE(ends[0]->status().ok());
  ends[0]->cancel({"first"});
  ends[1]->cancel({"second"});
  EXPECT_EQ(ends[1]->status().error().what, "first");
}

// A meeting that was complete counts for all, also when it is closed at the same time.
TEST(MeetingPoint, ClosingNeverPartsThoseOfAMeeting) {
  for (int round = 0; round < 100; ++round) {
    MeetingPoint point(3);
    Vote results[3];
    std::thread closer([&] {
      for (int i = 0; i < round % 7; ++i) std::this_thread::yield();
      point.close({"closed"});
    });
    RankThreads threads(3);
    threads.run([&](int rank) { results[rank] = point.meet(); });
    closer.join();
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(RankThreads, EachRankHasItsOwnThreadAndAllRunAtTheSameTime) {
  constexpr int kRanks = 4;
  RankThreads threads(kRanks);
  std::thread::id first[kRanks];
  for (int round = 0; round < 100; ++round) {
    MeetingPoint all_here(kRanks);  // would wait for ever if two ranks had one thread
    std::thread::id ids[kRanks];
    threads.run([&](int rank) {
      all_here.meet();
      ids[rank] = std::this_thread::get_id();
    });
    EXPECT_EQ(std::set<std::thread::id>(ids, ids + kRanks).size(), kRanks);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    if (round == 0) std::copy(ids, ids + kRanks, first);
    EXPECT_TRUE(std::equal(ids, ids + kRanks, first));
  }
}

}  // namespace
}  // namespace reckoner
