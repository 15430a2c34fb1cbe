#include <algorithm>

#include "kernels/cpu/linear/dot_cores.h"
#include "kernels/cpu/linear/dot_driver.h"
#include "kernels/cpu/linear/linear.h"

namespace reckoner {
namespace {

using Rows = LinearExpertsArgs::Rows;

std::int64_t expert_count(const LinearExpertsArgs& args) { return static_cast<std::int64_t>(args.experts.size()); }

// How a call is cut: x as it is, all of it at once, if that is little; else slot by slot, a part of the slots at a time.
struct Plan {
  bool by_token;             // packed row = token, found through slots.tokens; else packed row = slot of the part
  std::int64_t packed_rows;  // at a time
  std::int64_t slots_at_a_time;
};

Plan plan(const DotCore& core, const LinearExpertsArgs& args) {
  const std::int64_t cols = args.experts.front().cols;
  const std::int64_t slots = args.y.dim(0);
  const std::int64_t x_rows = args.x.dim(0);
  if (args.rows == Rows::by_token && dot_rows_at_a_time(core, cols, x_rows) == x_rows) return {true, x_rows, slots};
  const std::int64_t at_a_time = dot_rows_at_a_time(core, cols, slots);
  return {false, at_a_time, at_a_time};
}

DotDriver driver(const DotCore& core, const LinearExpertsArgs& args, int threads) {
  return {core, {.rows = plan(core, args).packed_rows, .cols = args.experts.front().cols}, threads};
}

std::int64_t workspace_bytes(const DotCore& core, const LinearExpertsArgs& args, int threads) {
  return driver(core, args, threads).workspace_bytes() + expert_count(args) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

// The slots of one expert that lie in a part.
struct Range {
  std::int32_t first, count;
};
Range range_in(const LinearExpertsArgs& args, std::int64_t expert, std::int64_t first_slot, std::int64_t slots) {
  const std::int32_t* begin = args.slots.begin.i32() + expert;
  const auto first = static_cast<std::int32_t>(std::max<std::int64_t>(begin[0], first_slot));
  const auto end = static_cast<std::int32_t>(std::min<std::int64_t>(begin[1], first_slot + slots));
  return {first, std::max(0, end - first)};
}

// Experts that have slots in the part, those with the most first: what is long must not start last.
std::int64_t list_active(const LinearExpertsArgs& args, std::int64_t first_slot, std::int64_t slots, std::int32_t* active /* [experts] */) {
  std::int64_t count = 0;
  for (std::int64_t expert = 0; expert < expert_count(args); ++expert) {
    const std::int32_t mine = range_in(args, expert, first_slot, slots).count;
    if (mine == 0) continue;
    std::int64_t at = count++;
    for (; at > 0 && range_in(args, active[at - 1], first_slot, slots).count < mine; --at) active[at] = active[at - 1];
    active[at] = static_cast<std::int32_t>(expert);
  }
  return count;
}

void run_part(const LinearExpertsArgs& args, const DotDriver& dot, Lane& lane, bool by_token, std::int64_t first_slot, std::int64_t slots) {
  auto* active = reinterpret_cast<std::int32_t*>(lane.workspace + dot.workspace_bytes());
  const std::int64_t groups = list_active(args, first_slot, slots, active);
  if (groups == 0) return;
  const std::int64_t out = args.experts.front().rows;
  const auto group_at = [&](std::int64_t i) {
    const Range range = range_in(args, active[i], first_slot, slots);
    return DotGroup{.w = args.experts[static_cast<std::size_t>(active[i])],
                    .x_first = by_token ? 0 : range.first - first_slot,
                    .x_step = 1,
                    .x_index = by_token ? args.slots.tokens.i32() + range.first : nullptr,
                    .tokens = range.count,
                    .y = args.y.f32() + range.first * out,
                    .y_stride = out};
  };
  dot.run(lane, groups, out, range_in(args, active[0], first_slot, slots).count, group_at);
}

void run(const DotCore& core, const LinearExpertsArgs& args, Lane& lane) {
  const DotDriver dot = driver(core, args, lane.pool.threads());
  const Plan cut = plan(core, args);
  // A batch may leave slots at the end unused.
  const std::int64_t slots = std::min<std::int64_t>(args.y.dim(0), args.slots.begin.i32()[expert_count(args)]);
  if (cut.by_token) dot.pack(lane, args.x.f32(), nullptr, args.x.dim(0));
  for (std::int64_t first = 0; first < slots; first += cut.slots_at_a_time) {
    const std::int64_t count = std::min(cut.slots_at_a_time, slots - first);
    if (!cut.by_token) {
      const bool gather = args.rows == Rows::by_token;
      const float* x = gather ? args.x.f32() : args.x.f32() + first * args.experts.front().cols;
      dot.pack(lane, x, gather ? args.slots.tokens.i32() + first : nullptr, count);
    }
    run_part(args, dot, lane, cut.by_token, first, count);
  }
}

template <const auto& core>
struct Runner {
  static std::int64_t workspace_bytes(const LinearExpertsArgs& args, int threads) { return reckoner::workspace_bytes(core, args, threads); }
  static void run(const LinearExpertsArgs& args, Lane& lane) { reckoner::run(core, args, lane); }
};

}  // namespace

std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels() { return dot_kernels<LinearExpertsArgs, Runner>(); }

}  // namespace reckoner
