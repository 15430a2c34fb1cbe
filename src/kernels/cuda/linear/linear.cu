// The lists of linear kernels. Which of its ways a kernel goes depends on shapes that are known only when it is called.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/few_rows_spread.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/rows/rows.h"

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
  if (args.w.format == QuantFormat::nvfp4 && args.w.cols > 512 && args.w.cols <= 2048) return false;
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

// The same for what is not for few rows that are spread.
Support supports_spread(const Key& key, const DeviceInfo& device) {
  Support support = supports_stream(key, device);
  if (!support.yes) return support;
  return supports_portable(device, std::max(support.shared_bytes, kSpreadSharedBytes));
}
std::int64_t linear_spread_workspace_of(const LinearArgs& args, int threads) {
  return fits_linear_spread(args) ? linear_spread_workspace(args) : linear_stream_workspace_of(args, threads);
}
void run_linear_or_spread(const LinearArgs& args, Lane& lane) {
  if (fits_linear_spread(args)) return run_linear_spread(args, lane);
  run_linear_or_stream(args, lane);
}

// What these are not for goes the other ways.
Support supports_wgmma(const Key& key, const DeviceInfo& device) {
  if (device.cuda.major != 9 || device.cuda.minor != 0) return {.yes = false, .reason = "needs compute capability 9.0"};
  Support support = supports_spread(key, device);
  if (!support.yes) return support;
  return supports_portable(device, std::max(support.shared_bytes, wgmma_shared_bytes(key.format)));
}

// Below, reading a weight anew for every eight tokens costs less than tiles that are mostly empty.
constexpr std::int64_t kWgmmaTokens = 16;
constexpr std::int64_t kWgmmaSlots = 4;  // an expert, on average

bool is_wgmma(const LinearArgs& args) { return args.x.dim(0) >= kWgmmaTokens && fits_wgmma(args.w); }
bool is_wgmma(const LinearExpertsArgs& args) {
  return args.y.dim(0) >= kWgmmaSlots * std::ssize(args.experts) && fits_wgmma(args.experts.front());
}

std::int64_t linear_wgmma_workspace_of(const LinearArgs& args, int threads) {
  return is_wgmma(args) ? linear_wgmma_workspace(args) : linear_spread_workspace_of(args, threads);
}
std::int64_t experts_wgmma_workspace_of(const LinearExpertsArgs& args, int threads) {
  return is_wgmma(args) ? linear_wgmma_workspace(args) : experts_stream_workspace_of(args, threads);
}

void run_linear_or_wgmma(const LinearArgs& args, Lane& lane) {
  if (is_wgmma(args)) return run_linear_wgmma(args, lane);
  run_linear_or_spread(args, lane);
}
void run_experts_or_wgmma(const LinearExpertsArgs& args, Lane& lane) {
  if (is_wgmma(args)) return run_linear_wgmma(args, lane);
  run_experts_or_stream(args, lane);
}

// What is too wide or odd goes the ways of `exact` that were there before.
Support supports_exact(const Key& key, const DeviceInfo& device) {
  if (key.precision != Precision::exact || !is_plain(key.format)) return {.yes = false, .reason = "is for float products of plain weights"};
  return has_chunks(key.format) ? supports_mma(key, device) : supports_portable(device, 0);
}
std::int64_t linear_exact_workspace(const LinearArgs& args, int threads) {
  return fits_exact_rows(args.w) || !has_chunks(args.w.format) ? 0 : linear_workspace(args, threads);
}
void run_linear_exact_or_mma(const LinearArgs& args, Lane& lane) {
  if (fits_exact_rows(args.w) && fits_linear_dots(args.precision, args.w.format, args.x.dim(0), args.w.cols))
    return run_linear_spread(args, lane);
  if (fits_exact_rows(args.w)) return run_linear_exact(args, lane);
  if (has_chunks(args.w.format)) return run_linear_mma(args, lane);
  linear_generic().run(args, lane);
}

// ---- linear_group: in one go, or one after the other ----

std::int64_t part_workspace(const LinearArgs& args, int threads) {
  return args.precision == Precision::exact ? linear_exact_workspace(args, threads) : linear_spread_workspace_of(args, threads);
}
void run_part(const LinearArgs& args, Lane& lane) {
  if (args.precision == Precision::exact) return run_linear_exact_or_mma(args, lane);
  run_linear_or_spread(args, lane);
}

// Of the norm of x, where the parts are computed one after the other.
std::int64_t normed_bytes(const LinearGroupArgs& args) {
  return args.norm.shape.rank() == 0 ? 0 : round_up(args.x.shape.elements() * 4, 256);
}

std::int64_t linear_group_workspace(const LinearGroupArgs& args, int threads) {
  if (fits_linear_spread(args)) return linear_spread_workspace(args);
  std::int64_t most = 0;
  for (int i = 0; i < args.count; ++i) most = std::max(most, part_workspace(linear_of(args, i, args.x), threads));
  return normed_bytes(args) + most;
}

// What the parts read: x, or its norm in the workspace; and behind that the rest of the workspace.
struct GroupInput {
  Tensor x;
  Lane rest;
};
GroupInput group_input(const LinearGroupArgs& args, Lane& lane) {
  GroupInput input{.x = args.x, .rest = {lane.pool, lane.workspace + normed_bytes(args), lane.stream}};
  if (normed_bytes(args) > 0) {
    input.x.data = lane.workspace;
    rms_norm_registers().run(norm_of(args, input.x), lane);
  }
  return input;
}

void run_linear_group(const LinearGroupArgs& args, Lane& lane) {
  if (fits_linear_spread(args)) return run_linear_spread(args, lane);
  GroupInput input = group_input(args, lane);
  for (int i = 0; i < args.count; ++i) run_part(linear_of(args, i, input.x), input.rest);
}

// Those of its parts that round activations, as a group without a norm.
LinearGroupArgs rounded_parts(const LinearGroupArgs& args, const Tensor& x) {
  LinearGroupArgs rounded{.x = x, .norm = {}, .epsilon = 0, .count = 0, .parts = {}};
  for (int i = 0; i < args.count; ++i) {
    const LinearPart& part = args.parts[static_cast<std::size_t>(i)];
    if (part.precision == Precision::fast) rounded.parts[static_cast<std::size_t>(rounded.count++)] = part;
  }
  return rounded;
}

bool is_wgmma(const LinearGroupArgs& args) {
  const LinearGroupArgs rounded = rounded_parts(args, args.x);
  if (rounded.count == 0 || args.x.dim(0) < kWgmmaTokens) return false;
  return std::all_of(rounded.parts.begin(), rounded.parts.begin() + rounded.count,
                     [&](const LinearPart& part) { return part.w.format == args.parts[0].w.format && fits_wgmma(part.w); });
}

std::int64_t group_wgmma_workspace(const LinearGroupArgs& args, int threads) {
  const std::int64_t one_after_the_other = linear_group_workspace(args, threads);
  return is_wgmma(args) ? std::max(one_after_the_other, normed_bytes(args) + linear_wgmma_workspace(args)) : one_after_the_other;
}

void run_group_or_wgmma(const LinearGroupArgs& args, Lane& lane) {
  if (!is_wgmma(args)) return run_linear_group(args, lane);
  GroupInput input = group_input(args, lane);
  run_linear_wgmma(rounded_parts(args, input.x), input.rest);
  for (int i = 0; i < args.count; ++i) {
    if (args.parts[static_cast<std::size_t>(i)].precision == Precision::exact) run_part(linear_of(args, i, input.x), input.rest);
  }
}

}  // namespace

std::vector<Kernel<LinearGroupArgs>> linear_group_kernels() {
  return {{"linear_group.wgmma.cuda", supports_wgmma, group_wgmma_workspace, run_group_or_wgmma},
          {"linear_group.cuda", supports_spread, linear_group_workspace, run_linear_group}};
}

std::vector<Kernel<LinearArgs>> linear_kernels() {
  return {{"linear.wgmma.cuda", supports_wgmma, linear_wgmma_workspace_of, run_linear_or_wgmma},
          {"linear.spread.cuda", supports_spread, linear_spread_workspace_of, run_linear_or_spread},
          {"linear.exact.cuda", supports_exact, linear_exact_workspace, run_linear_exact_or_mma},
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
