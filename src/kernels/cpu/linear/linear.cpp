#include "kernels/cpu/linear/linear.h"

#include <algorithm>

#include "kernels/cpu/linear/dot_cores.h"
#include "kernels/cpu/linear/dot_driver.h"

namespace reckoner {
namespace {

DotDriver driver(const DotCore& core, const LinearArgs& args, int threads) {
  return {core, {.rows = dot_rows_at_a_time(core, args.w.cols, args.x.dim(0)), .cols = args.w.cols}, threads};
}

std::int64_t workspace_bytes(const DotCore& core, const LinearArgs& args, int threads) {
  return driver(core, args, threads).workspace_bytes();
}

void run(const DotCore& core, const LinearArgs& args, Lane& lane) {
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

template <const auto& core>
struct Runner {
  static std::int64_t workspace_bytes(const LinearArgs& args, int threads) { return reckoner::workspace_bytes(core, args, threads); }
  static void run(const LinearArgs& args, Lane& lane) { reckoner::run(core, args, lane); }
};

}  // namespace

std::vector<Kernel<LinearArgs>> linear_kernels() { return dot_kernels<LinearArgs, Runner>(); }

}  // namespace reckoner
