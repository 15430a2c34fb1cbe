// How quick a model would be on a device, from what its steps must move and multiply.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/doctor/hardware_names.h"
#include "ops/kernel.h"

namespace reckoner::doctor {

// What a step's time is worked out from. An op takes the longer of what its bytes and its multiply-adds take, and a launch.
struct SpeedBasis {
  double memory_gbs = 0;       // peak
  double tflops = 0;           // peak; 0: not known, and steps of many tokens cannot be predicted
  double memory_share = 0.7;   // of the peak that kernels reach
  double compute_share = 0.4;  // the same
  double launch_us = 0;        // of a kernel in a recorded step
  int ranks = 1;
  Link link = Link::none;
  double link_gbs = 0;
  std::int64_t hidden = 0;  // width of what ranks add up
  std::int64_t layers = 0;  // twice in each
};

SpeedBasis basis_for_gpu(double memory_gbs, const Peaks& peaks);
// Both as measured.
SpeedBasis basis_for_processor(double memory_gbs, double tflops);

struct StepTime {
  double seconds = 0;
  double memory_seconds = 0;   // of ops that the memory limits
  double compute_seconds = 0;  // of ops that multiply-adds limit
  double ranks_seconds = 0;    // of adding up
  double launch_seconds = 0;
};
// Nothing (0 s) where it cannot be said.
StepTime step_time(const std::vector<Ops::Call>& calls, std::int64_t tokens, const SpeedBasis& basis);

struct DecodeSpeed {
  std::int64_t streams = 0;
  std::int64_t context = 0;
  double tokens_per_second = 0;  // of all streams together
};
struct PrefillSpeed {
  std::int64_t context = 0;      // tokens before the chunk
  double tokens_per_second = 0;  // 0: unknown
};

}  // namespace reckoner::doctor
