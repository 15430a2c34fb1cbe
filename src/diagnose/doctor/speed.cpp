#include "diagnose/doctor/speed.h"

#include <algorithm>

namespace reckoner::doctor {
namespace {

// A kernel of a recorded step starts this long after the one before it has ended.
constexpr double kLaunchUs = 1.5;
constexpr double kWakeUs = 5;
// What adding up a few rows takes at least: over PCIe through NCCL, over NVLink.
constexpr double kPcieUs = 25;
constexpr double kNvlinkUs = 10;

double adding_up_seconds(std::int64_t tokens, const SpeedBasis& basis) {
  if (basis.ranks == 1) return 0;
  const double least = (basis.link == Link::nvlink ? kNvlinkUs : kPcieUs) * 1e-6;
  // A ring moves each element almost twice.
  const double bytes = static_cast<double>(tokens * basis.hidden) * 4 * 2 * (basis.ranks - 1) / basis.ranks;
  const double moving = basis.link_gbs > 0 ? bytes / (basis.link_gbs * 1e9 * basis.memory_share) : 0;
  return 2 * static_cast<double>(basis.layers) * (least + moving);
}

}  // namespace

SpeedBasis basis_for_gpu(double memory_gbs, const Peaks& peaks) {
  return {.memory_gbs = memory_gbs, .tflops = peaks.bf16_tflops, .launch_us = kLaunchUs, .link = peaks.link, .link_gbs = peaks.link_gbs};
}

// What is measured is no peak: kernels come close to it. Waking the threads takes a few microseconds.
SpeedBasis basis_for_processor(double memory_gbs, double tflops) {
  return {.memory_gbs = memory_gbs, .tflops = tflops, .memory_share = 0.8, .compute_share = 0.7, .launch_us = kWakeUs};
}

StepTime step_time(const std::vector<Ops::Call>& calls, std::int64_t tokens, const SpeedBasis& basis) {
  StepTime time;
  if (basis.memory_gbs <= 0 || calls.empty()) return time;
  for (const Ops::Call& call : calls) {
    const double moving = call.cost.bytes / (basis.memory_gbs * 1e9 * basis.memory_share);
    const double multiplying = basis.tflops > 0 ? 2 * call.cost.multiply_adds / (basis.tflops * 1e12 * basis.compute_share) : 0;
    (moving >= multiplying ? time.memory_seconds : time.compute_seconds) += std::max(moving, multiplying);
    time.launch_seconds += basis.launch_us * 1e-6;
  }
  time.ranks_seconds = adding_up_seconds(tokens, basis);
  time.seconds = time.memory_seconds + time.compute_seconds + time.ranks_seconds + time.launch_seconds;
  return time;
}

}  // namespace reckoner::doctor
