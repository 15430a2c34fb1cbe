// Row ops that move rows, or are dominated by exact scalar functions: the reference's arithmetic, spread over the threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/rows/rows.h"
#include "quant/format.h"

namespace reckoner {
namespace {

Support always(const Key&, const DeviceInfo&) { return {}; }

template <class Args>
std::int64_t no_workspace(const Args&, int) {
  return 0;
}

void run_angles(const RopeAnglesArgs& args, Lane& lane) {
  constexpr std::int64_t kGrain = 8;  // tokens of an item
  const std::int64_t tokens = args.positions.dim(0);
  lane.pool.parallel_for((tokens + kGrain - 1) / kGrain, [&](std::int64_t item, int) {
    const std::int64_t first = item * kGrain;
    const std::int64_t count = std::min(kGrain, tokens - first);
    reference(RopeAnglesArgs{.positions = args.positions.rows(first, count),
                             .frequencies = args.frequencies,
                             .cosine = args.cosine.rows(first, count),
                             .sine = args.sine.rows(first, count)});
  });
}

void run_embed(const EmbedArgs& args, Lane& lane) {
  lane.pool.parallel_for(args.tokens.dim(0), [&](std::int64_t token, int) {
    reference(EmbedArgs{.tokens = args.tokens.rows(token, 1), .table = args.table, .y = args.y.rows(token, 1)});
  });
}

void run_gather(const GatherRowsArgs& args, Lane& lane) {
  constexpr std::int64_t kGrain = 4;  // rows of an item
  const std::int64_t count = args.rows.dim(0);
  lane.pool.parallel_for((count + kGrain - 1) / kGrain, [&](std::int64_t item, int) {
    const std::int64_t first = item * kGrain;
    const std::int64_t some = std::min(kGrain, count - first);
    reference(GatherRowsArgs{.x = args.x, .rows = args.rows.rows(first, some), .y = args.y.rows(first, some)});
  });
}

}  // namespace

std::vector<Kernel<RopeAnglesArgs>> rope_angles_kernels() {
  return {{.name = "rope_angles.portable", .supports = always, .workspace_bytes = no_workspace<RopeAnglesArgs>, .run = run_angles}};
}
std::vector<Kernel<EmbedArgs>> embed_kernels() {
  return {{.name = "embed.portable", .supports = always, .workspace_bytes = no_workspace<EmbedArgs>, .run = run_embed}};
}
std::vector<Kernel<GatherRowsArgs>> gather_rows_kernels() {
  return {{.name = "gather_rows.portable", .supports = always, .workspace_bytes = no_workspace<GatherRowsArgs>, .run = run_gather}};
}

}  // namespace reckoner
