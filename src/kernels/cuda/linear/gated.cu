// The lists of gated_linear, gated_experts and experts_combine. Where one launch is no gain they call the kernels of the ops that they are
// made of.
#include "kernels/cuda/linear/gated.h"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/rows/rows.h"

namespace reckoner::cuda {
namespace {

// A part's kernel: of the portable ones the best, as nobody asks whether a particular one was refused. These ops' own admission has cases
// that come this way. The last of the list takes all.
template <class Args>
const Kernel<Args>& part_kernel(const std::vector<Kernel<Args>>& list, const Args& args) {
  DeviceInfo portable;
  portable.cuda.major = 8;
  portable.cuda.shared_bytes_per_block = kPortableSharedBytes;
  const Kernel<Args>* const chosen = choose_kernel(list, args.key(), portable);
  return chosen != nullptr ? *chosen : list.back();
}

template <class Args>
std::int64_t part_workspace(const std::vector<Kernel<Args>>& list, const Args& args, int threads) {
  return part_kernel(list, args).workspace_bytes(args, threads);
}
template <class Args>
void run_part(const std::vector<Kernel<Args>>& list, const Args& args, const Lane& lane, std::byte* workspace) {
  Lane own{lane.pool, workspace, lane.stream};
  part_kernel(list, args).run(args, own);
}

Tensor floats_at(std::byte* data, const Shape& shape) { return {.data = data, .dtype = DType::f32, .shape = shape}; }
std::int64_t floats_bytes(const Shape& shape) { return round_up(shape.elements() * 4, 256); }

Support supports_fast(const Key& key, const DeviceInfo& device, std::int64_t shared_bytes) {
  if (key.precision == Precision::exact) return {.yes = false, .reason = "rounds activations to BF16"};
  return supports_portable(device, shared_bytes);
}

// ---- gated_linear ----

Support supports_gated_linear(const Key& key, const DeviceInfo& device) {
  if (!has_chunks(key.format)) return {.yes = false, .reason = "has no tensor core operands for this format"};
  return supports_fast(key, device, gated_stream_shared_bytes(key.format));
}

struct GatedParts {
  LinearArgs gate, up;
  SiluMulArgs silu;
};
GatedParts parts_of(const GatedLinearArgs& args, std::byte* workspace) {
  const Tensor up = floats_at(workspace, args.y.shape);
  return {.gate = {.x = args.x, .w = args.gate, .y = args.y, .precision = args.precision},
          .up = {.x = args.x, .w = args.up, .y = up, .precision = args.precision},
          .silu = {.gate = args.y, .up = up, .y = args.y}};
}

std::int64_t gated_linear_workspace(const GatedLinearArgs& args, int threads) {
  if (fits_gated_linear_few(args)) return 0;
  if (fits_gated_stream(args)) return gated_stream_workspace(args.x, args.gate.format);
  return floats_bytes(args.y.shape) + part_workspace(linear_kernels(), parts_of(args, nullptr).gate, threads);
}

void run_gated_linear(const GatedLinearArgs& args, Lane& lane) {
  if (fits_gated_linear_few(args)) return run_gated_linear_few(args, lane);
  if (fits_gated_stream(args)) return run_gated_stream(args, lane);
  const GatedParts parts = parts_of(args, lane.workspace);
  std::byte* const rest = lane.workspace + floats_bytes(args.y.shape);
  run_part(linear_kernels(), parts.gate, lane, rest);
  run_part(linear_kernels(), parts.up, lane, rest);
  run_part(silu_mul_kernels(), parts.silu, lane, rest);
}

// ---- gated_experts ----

Support supports_gated_experts(const Key& key, const DeviceInfo& device) {
  if (!has_chunks(key.format)) return {.yes = false, .reason = "has no tensor core operands for this format"};
  return supports_fast(key, device, gated_stream_shared_bytes(key.format));
}

std::int64_t gated_experts_workspace(const GatedExpertsArgs& args, int threads) {
  if (fits_gated_stream(args)) return gated_stream_workspace(args.x, args.gate.front().format);
  const Tensor rows = floats_at(nullptr, args.y.shape);
  return floats_bytes(args.y.shape) + part_workspace(linear_experts_kernels(), gate_of(args, rows), threads);
}

void run_gated_experts(const GatedExpertsArgs& args, Lane& lane) {
  if (fits_gated_stream(args)) return run_gated_stream(args, lane);
  const Tensor up = floats_at(lane.workspace, args.y.shape);
  std::byte* const rest = lane.workspace + floats_bytes(args.y.shape);
  run_part(linear_experts_kernels(), gate_of(args, args.y), lane, rest);
  run_part(linear_experts_kernels(), up_of(args, up), lane, rest);
  run_part(silu_mul_kernels(), SiluMulArgs{.gate = args.y, .up = up, .y = args.y}, lane, rest);
}

// ---- experts_combine ----

Support supports_experts_combine(const Key& key, const DeviceInfo& device) {
  if (!has_chunks(key.format)) return {.yes = false, .reason = "has no tensor core operands for this format"};
  return supports_fast(key, device, experts_combine_shared_bytes(key.format));
}

Shape rows_shape(const ExpertsCombineArgs& args) { return {args.slots.tokens.shape.elements(), args.shared.rows}; }

std::int64_t experts_combine_workspace(const ExpertsCombineArgs& args, int threads) {
  if (fits_experts_combine_few(args)) return 0;
  const LinearExpertsArgs experts = experts_of(args, floats_at(nullptr, rows_shape(args)));
  const std::int64_t down = fits_experts_down(experts) ? 0 : part_workspace(linear_experts_kernels(), experts, threads);
  return floats_bytes(rows_shape(args)) + std::max(down, part_workspace(linear_kernels(), shared_of(args), threads));
}

void run_experts_combine(const ExpertsCombineArgs& args, Lane& lane) {
  if (fits_experts_combine_few(args)) return run_experts_combine_few(args, lane);
  const Tensor rows = floats_at(lane.workspace, rows_shape(args));
  std::byte* const rest = lane.workspace + floats_bytes(rows.shape);
  run_part(linear_kernels(), shared_of(args), lane, rest);
  const LinearExpertsArgs experts = experts_of(args, rows);
  if (fits_experts_down(experts)) {
    run_experts_down(experts, lane);
  } else {
    run_part(linear_experts_kernels(), experts, lane, rest);
  }
  run_part(combine_kernels(), combine_of(args, rows), lane, rest);
}

}  // namespace

std::vector<Kernel<GatedLinearArgs>> gated_linear_kernels() {
  return {{"gated_linear.few.cuda", supports_gated_linear, gated_linear_workspace, run_gated_linear}};
}
std::vector<Kernel<GatedExpertsArgs>> gated_experts_kernels() {
  return {{"gated_experts.stream.cuda", supports_gated_experts, gated_experts_workspace, run_gated_experts}};
}
std::vector<Kernel<ExpertsCombineArgs>> experts_combine_kernels() {
  return {{"experts_combine.few.cuda", supports_experts_combine, experts_combine_workspace, run_experts_combine}};
}

}  // namespace reckoner::cuda
