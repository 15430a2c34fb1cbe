// The lists of linear kernels. Which of its ways a kernel goes depends on shapes that are known only when it is called.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

Support supports_mma(const Key& key, const DeviceInfo& device) {
  if (!has_chunks(key.format)) return {.yes = false, .reason = "has no tensor core operands for this format"};
  return supports_portable(device, std::max(few_rows_shared_bytes(key), many_rows_shared_bytes(key)));
}

// From here on reading the weight anew for every eight tokens takes longer than tiles of 128 that are not full.
constexpr std::int64_t kManyTokens = 65;
constexpr std::int64_t kManySlots = 24;  // an expert, on average

bool is_many(const LinearArgs& args) { return args.precision == Precision::fast && args.x.dim(0) >= kManyTokens && fits_many_rows(args.w); }
bool is_many(const LinearExpertsArgs& args) {
  return args.precision == Precision::fast && args.y.dim(0) >= kManySlots * std::ssize(args.experts) &&
         fits_many_rows(args.experts.front());
}

std::int64_t linear_workspace(const LinearArgs& args, int) {
  if (is_many(args)) return linear_many_workspace(args);
  return fits_few_rows(args.w) ? linear_few_workspace(args) : 0;
}
std::int64_t linear_experts_workspace(const LinearExpertsArgs& args, int) {
  if (is_many(args)) return linear_experts_many_workspace(args);
  return fits_few_rows(args.experts.front()) ? linear_experts_few_workspace(args) : 0;
}

void run_linear_mma(const LinearArgs& args, Lane& lane) {
  if (is_many(args)) return run_linear_many(args, lane);
  if (fits_few_rows(args.w)) return run_linear_few(args, lane);
  linear_generic().run(args, lane);
}

void run_linear_experts_mma(const LinearExpertsArgs& args, Lane& lane) {
  if (is_many(args)) return run_linear_experts_many(args, lane);
  if (fits_few_rows(args.experts.front())) return run_linear_experts_few(args, lane);
  linear_experts_generic().run(args, lane);
}

// What the stream is not for goes the other ways.
Support supports_stream(const Key& key, const DeviceInfo& device) {
  if (key.precision == Precision::exact) return {.yes = false, .reason = "rounds activations to BF16"};
  Support support = supports_mma(key, device);
  if (!support.yes) return support;
  return supports_portable(device, std::max(support.shared_bytes, stream_shared_bytes(key.format)));
}

// Measured (bench/results): below, the few rows' other way is as quick or quicker.
constexpr std::int64_t kStreamTokens = 8;
constexpr std::int64_t kWideStreamSlots = 8;  // of experts that take in more than they give out

bool is_stream(const LinearArgs& args) {
  return args.precision == Precision::fast && args.x.dim(0) >= kStreamTokens && !is_many(args) && fits_linear_stream(args);
}
bool is_stream(const LinearExpertsArgs& args) {
  const bool is_wide = args.experts.front().cols > args.experts.front().rows;
  if (is_wide && args.y.dim(0) > kWideStreamSlots) return false;
  return args.precision == Precision::fast && !is_many(args) && fits_linear_stream(args);
}

std::int64_t linear_stream_workspace_of(const LinearArgs& args, int threads) {
  return is_stream(args) ? linear_stream_workspace(args) : linear_workspace(args, threads);
}
std::int64_t experts_stream_workspace_of(const LinearExpertsArgs& args, int threads) {
  return is_stream(args) ? linear_stream_workspace(args) : linear_experts_workspace(args, threads);
}

void run_linear_or_stream(const LinearArgs& args, Lane& lane) {
  if (is_stream(args)) return run_linear_stream(args, lane);
  run_linear_mma(args, lane);
}
void run_experts_or_stream(const LinearExpertsArgs& args, Lane& lane) {
  if (is_stream(args)) return run_linear_stream(args, lane);
  run_linear_experts_mma(args, lane);
}

// What these are not for goes the other ways.
Support supports_wgmma(const Key& key, const DeviceInfo& device) {
  if (device.cuda.major != 9 || device.cuda.minor != 0) return {.yes = false, .reason = "needs compute capability 9.0"};
  Support support = supports_stream(key, device);
  if (!support.yes) return support;
  return supports_portable(device, std::max(support.shared_bytes, wgmma_shared_bytes(key.format)));
}

// Measured (bench/results): below, the others are as quick or quicker.
constexpr std::int64_t kWgmmaTokens = 16;
constexpr std::int64_t kWgmmaSlots = 4;  // an expert, on average

bool is_wgmma(const LinearArgs& args) { return args.x.dim(0) >= kWgmmaTokens && fits_wgmma(args.w); }
bool is_wgmma(const LinearExpertsArgs& args) {
  return args.y.dim(0) >= kWgmmaSlots * std::ssize(args.experts) && fits_wgmma(args.experts.front());
}

std::int64_t linear_wgmma_workspace_of(const LinearArgs& args, int threads) {
  return is_wgmma(args) ? linear_wgmma_workspace(args) : linear_stream_workspace_of(args, threads);
}
std::int64_t experts_wgmma_workspace_of(const LinearExpertsArgs& args, int threads) {
  return is_wgmma(args) ? linear_wgmma_workspace(args) : experts_stream_workspace_of(args, threads);
}

void run_linear_or_wgmma(const LinearArgs& args, Lane& lane) {
  if (is_wgmma(args)) return run_linear_wgmma(args, lane);
  run_linear_or_stream(args, lane);
}
void run_experts_or_wgmma(const LinearExpertsArgs& args, Lane& lane) {
  if (is_wgmma(args)) return run_linear_wgmma(args, lane);
  run_experts_or_stream(args, lane);
}

}  // namespace

std::vector<Kernel<LinearArgs>> linear_kernels() {
  return {{"linear.wgmma.cuda", supports_wgmma, linear_wgmma_workspace_of, run_linear_or_wgmma},
          {"linear.stream.cuda", supports_stream, linear_stream_workspace_of, run_linear_or_stream},
          {"linear.mma.cuda", supports_mma, linear_workspace, run_linear_mma},
          linear_generic()};
}

std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels() {
  return {{"linear_experts.wgmma.cuda", supports_wgmma, experts_wgmma_workspace_of, run_experts_or_wgmma},
          {"linear_experts.stream.cuda", supports_stream, experts_stream_workspace_of, run_experts_or_stream},
          {"linear_experts.mma.cuda", supports_mma, linear_experts_workspace, run_linear_experts_mma},
          linear_experts_generic()};
}

}  // namespace reckoner::cuda
