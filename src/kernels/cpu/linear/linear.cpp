#include "kernels/cpu/linear/linear.h"

#include <algorithm>

#include "kernels/cpu/linear/dot_driver.h"
#include "kernels/cpu/linear/dot_supports.h"

namespace reckoner {
namespace {

DotDriver driver(const DotCore& core, const LinearArgs& args, int threads) {
  return {core, {.rows = dot_rows_at_a_time(core, args.w.cols, args.x.dim(0)), .cols = args.w.cols}, threads};
}

template <const DotCore& core>
std::int64_t workspace_bytes(const LinearArgs& args, int threads) {
  return driver(core, args, threads).workspace_bytes();
}

template <const DotCore& core>
void run(const LinearArgs& args, Lane& lane) {
  const DotDriver dot = driver(core, args, lane.pool.threads());
  const std::int64_t tokens = args.x.dim(0);
  const std::int64_t at_a_time = dot_rows_at_a_time(core, args.w.cols, tokens);
  for (std::int64_t first = 0; first < tokens; first += at_a_time) {
    const std::int64_t count = std::min(at_a_time, tokens - first);
    dot.pack(lane, args.x.f32() + first * args.w.cols, nullptr, count);
    const DotGroup group{.w = args.w,
                         .x_first = 0,
                         .x_step = 1,
                         .x_index = nullptr,
                         .tokens = count,
                         .y = args.y.f32() + first * args.w.rows,
                         .y_stride = args.w.rows};
    dot.run(lane, 1, args.w.rows, count, [&](std::int64_t) -> const DotGroup& { return group; });
  }
}

template <const DotCore& core>
Kernel<LinearArgs> kernel(std::string_view name, Support (*supports)(const Key&, const DeviceInfo&)) {
  return {.name = name, .supports = supports, .workspace_bytes = workspace_bytes<core>, .run = run<core>};
}

}  // namespace

std::vector<Kernel<LinearArgs>> linear_kernels() {
  return {
      kernel<avx512bf16::kDotBf16>("linear.bf16.avx512bf16", dot_needs_avx512bf16<QuantFormat::bf16>),
      kernel<avx512bf16::kDotNvfp4>("linear.nvfp4.avx512bf16", dot_needs_avx512bf16<QuantFormat::nvfp4>),
      kernel<avx512::kDotF32>("linear.f32.avx512", dot_needs_avx512<QuantFormat::f32>),
      kernel<avx512::kDotF16>("linear.f16.avx512", dot_needs_avx512<QuantFormat::f16>),
      kernel<avx512::kDotBf16>("linear.bf16.avx512", dot_needs_avx512<QuantFormat::bf16>),
      kernel<avx512::kDotNvfp4>("linear.nvfp4.avx512", dot_needs_avx512<QuantFormat::nvfp4>),
      kernel<avx2::kDotF32>("linear.f32.avx2", dot_needs_avx2<QuantFormat::f32>),
      kernel<avx2::kDotF16>("linear.f16.avx2", dot_needs_avx2<QuantFormat::f16>),
      kernel<avx2::kDotBf16>("linear.bf16.avx2", dot_needs_avx2<QuantFormat::bf16>),
      kernel<avx2::kDotNvfp4>("linear.nvfp4.avx2", dot_needs_avx2<QuantFormat::nvfp4>),
  };
}

}  // namespace reckoner
