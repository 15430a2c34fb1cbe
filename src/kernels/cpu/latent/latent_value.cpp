// latent_value: each head is a linear layer of its own, over its rows of kv_b.
#include <algorithm>

#include "kernels/cpu/latent/latent.h"
#include "kernels/cpu/linear/dot_cores.h"
#include "kernels/cpu/linear/dot_driver.h"

namespace reckoner {
namespace {

// Tokens at a time: a packed row is one token's latent of one head.
std::int64_t tokens_at_a_time(const DotCore& core, const LatentValueArgs& args) {
  const std::int64_t heads = args.x.dim(1);
  return std::max<std::int64_t>(1, dot_rows_at_a_time(core, args.kv_b.cols, args.x.dim(0) * heads) / heads);
}

DotDriver driver(const DotCore& core, const LatentValueArgs& args, int threads) {
  return {core, {.rows = tokens_at_a_time(core, args) * args.x.dim(1), .cols = args.kv_b.cols}, threads};
}

std::int64_t workspace_bytes(const DotCore& core, const LatentValueArgs& args, int threads) {
  return driver(core, args, threads).workspace_bytes();
}

void run(const DotCore& core, const LatentValueArgs& args, Lane& lane) {
  const DotDriver dot = driver(core, args, lane.pool.threads());
  const std::int64_t tokens = args.x.dim(0);
  const std::int64_t heads = args.x.dim(1);
  const std::int64_t v = args.y.dim(2);
  const std::int64_t at_a_time = tokens_at_a_time(core, args);
  for (std::int64_t first = 0; first < tokens; first += at_a_time) {
    const std::int64_t count = std::min(at_a_time, tokens - first);
    dot.pack(lane, args.x.f32() + first * heads * args.kv_b.cols, nullptr, count * heads);
    dot.run(lane, heads, v, count, [&](std::int64_t head) {
      return DotGroup{.w = row_range(args.kv_b, head * (args.nope + v) + args.nope, v),
                      .x_first = head,
                      .x_step = heads,
                      .x_index = nullptr,
                      .tokens = count,
                      .y = args.y.f32() + (first * heads + head) * v,
                      .y_stride = heads * v};
    });
  }
}

template <const auto& core>
struct Runner {
  static std::int64_t workspace_bytes(const LatentValueArgs& args, int threads) { return reckoner::workspace_bytes(core, args, threads); }
  static void run(const LatentValueArgs& args, Lane& lane) { reckoner::run(core, args, lane); }
};

}  // namespace

std::vector<Kernel<LatentValueArgs>> latent_value_kernels() { return dot_kernels<LatentValueArgs, Runner>(); }

}  // namespace reckoner
