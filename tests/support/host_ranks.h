// A model divided among ranks on the processor.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/tensor_parallel_model.h"
#include "kernels/cpu/catalogue.h"
#include "model/share_of.h"
#include "parallel/thread_communicator.h"

namespace reckoner {

class HostRanks {
 public:
  HostRanks(const std::string& folder, int ranks) : pool(ranks) {
    auto opened = open_model(folder);
    CHECK(opened.ok(), folder);
    whole = std::move(opened).value();
    for (int rank = 0; rank < ranks; ++rank) {
      auto share = share_of(*whole, {rank, ranks});
      CHECK(share.ok(), share.ok() ? "" : share.error().what);
      shares.push_back(std::move(share).value());
      CHECK(read_share(*shares.back(), pool, {}).ok());
    }
  }
  std::unique_ptr<TensorParallelModel> model(const StepLimits& limits, const DeviceInfo& device = detect_cpu()) {
    auto communicators = thread_communicators(static_cast<int>(shares.size()));
    std::vector<RankParts> parts;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      parts.push_back({.share = shares[rank].get(),
                       .weights = &shares[rank]->weights,
                       .device = {.info = device, .catalogue = cpu_catalogue()},
                       .communicator = std::move(communicators[rank]),
                       .name = "rank " + std::to_string(rank)});
    }
    return std::make_unique<TensorParallelModel>(std::move(parts), pool, Precision::exact, limits);
  }

  ThreadPool pool;
  std::unique_ptr<Model> whole;
  std::vector<std::unique_ptr<Model>> shares;
};

}  // namespace reckoner
