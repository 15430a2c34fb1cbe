// One linear layer, larger than the caches, with made-up weights of any format.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

class MatrixBench {
 public:
  static constexpr std::int64_t kRows = 24 * 1024;
  static constexpr std::int64_t kCols = 6144;

  MatrixBench(ThreadPool& pool, const DeviceInfo& device, const Catalogue& catalogue, QuantFormat format, Precision precision,
              std::int64_t tokens);

  void run() { ops_(args_); }
  std::string_view kernel() const { return call_.kernel; }
  const Cost& cost() const { return call_.cost; }

 private:
  Buffer x_, y_, data_, scales_;
  LinearArgs args_;
  Ops ops_;
  Ops::Call call_;
};

}  // namespace reckoner
