#include "kernels/cpu/attention/attend_latent.h"

#include <algorithm>

#include "kernels/cpu/attention/attend_piece.h"
#include "kernels/cpu/supports.h"

namespace reckoner {
namespace {

// A token's keys are attended in pieces of at least 512 keys, at most 16 of them, merged in order. How many depends on the number of its
// keys only, so that a token's result is the same whichever threads, and with whichever other tokens, it is computed.
constexpr std::int64_t kPieceKeys = 512;
constexpr std::int64_t kMaxPieces = 16;
// More groups of heads at once would push queries, outputs and packed rows of one item out of the second-level cache.
constexpr std::int64_t kMaxItemGroups = 4;

std::int64_t piece_keys(std::int64_t keys) { return std::max(kPieceKeys, round_up((keys + kMaxPieces - 1) / kMaxPieces, kBlockKeys)); }
std::int64_t pieces_of(std::int64_t keys) { return (keys + piece_keys(keys) - 1) / piece_keys(keys); }

bool sparse(const AttendLatentArgs& args) { return args.selection.counts.shape.rank() != 0; }

// How a call is cut into items, from shapes alone, and where its workspace lies (in floats).
struct Plan {
  std::int64_t groups;       // of heads
  std::int64_t item_groups;  // handled by one item, which packs each row once for all of them
  std::int64_t max_pieces;   // of a token
  bool split;                // too few (token, group) for the threads: every piece is an item, merged afterwards
  std::int64_t partial;      // Partial::floats
  std::int64_t scratch;      // of a thread: panels, packed rows, scores, two partials
  std::int64_t total;
};

Plan plan(const AttendLatentArgs& args, int threads) {
  const std::int64_t tokens = args.q.dim(0);
  const std::int64_t width = args.q.dim(2);
  const std::int64_t latent = args.y.dim(2);
  Plan plan{};
  plan.groups = head_groups(args.q.dim(1));
  plan.item_groups = tokens >= 2 * threads ? std::min(plan.groups, kMaxItemGroups) : 1;
  const std::int64_t keys = sparse(args) ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
  plan.max_pieces = std::min(kMaxPieces, (keys + kPieceKeys - 1) / kPieceKeys);
  plan.split = threads > 1 && plan.max_pieces > 1 && tokens * plan.groups < 4 * threads;
  plan.partial = Partial::floats(latent);
  plan.scratch = plan.item_groups * (panel_floats(width) + 2 * plan.partial) + packed_floats(width) + kBlockKeys * kHeadLanes;
  plan.total = threads * plan.scratch + (plan.split ? tokens * plan.max_pieces * plan.groups * plan.partial : 0);
  return plan;
}

// One token and some of its groups of heads.
struct Item {
  std::int64_t token;
  std::int64_t group;   // the first
  std::int64_t groups;  // how many
};

std::int64_t keys_of(const AttendLatentArgs& args, std::int64_t token) {
  return sparse(args) ? args.selection.counts.i32()[token] : args.places.positions.i32()[token] + 1;
}

// The first piece of an item, its panels made; `scratch` is the thread's. `partials` stands unset.
AttendPiece begin_item(const AttendLatentArgs& args, const Plan& plan, const Item& item, float* scratch) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t width = args.q.dim(2);
  float* packed = scratch + plan.item_groups * panel_floats(width);
  for (std::int64_t g = 0; g < item.groups; ++g) {
    const std::int64_t head = (item.group + g) * kHeadLanes;
    make_panel(args.q.f32() + (item.token * heads + head) * width, std::min(kHeadLanes, heads - head), width, args.scale,
               scratch + g * panel_floats(width));
  }
  return {.rows = cache_rows(args.cache),
          .pages = args.places.pages[static_cast<std::size_t>(item.token)],
          .positions = sparse(args) ? args.selection.positions.i32() + item.token * args.selection.top_k() : nullptr,
          .groups = item.groups,
          .latent_chunks = chunks_of(args.y.dim(2)),
          .panels = scratch,
          .packed = packed,
          .scores = packed + packed_floats(width),
          .partial_floats = plan.partial};
}

void attend_keys(const AttendFunctions& isa, AttendPiece& piece, std::int64_t index, std::int64_t keys, float* partials) {
  piece.first = index * piece_keys(keys);
  piece.count = std::min(piece_keys(keys), keys - piece.first);
  piece.partials = partials;
  isa.attend(piece);
}

// Writes y of a group of heads; `partial` is nullptr when the token attends to nothing.
void finish_group(const AttendLatentArgs& args, const AttendFunctions& isa, std::int64_t token, std::int64_t group, const float* partial) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t latent = args.y.dim(2);
  const std::int64_t head = group * kHeadLanes;
  const std::int64_t count = std::min(kHeadLanes, heads - head);
  float* y = args.y.f32() + (token * heads + head) * latent;
  if (partial == nullptr) {
    std::fill_n(y, count * latent, 0.0f);
  } else {
    isa.finish(partial, count, latent, y);
  }
}

// All pieces of an item, one after the other.
void run_item(const AttendLatentArgs& args, const AttendFunctions& isa, const Plan& plan, const Item& item, float* scratch) {
  const std::int64_t keys = keys_of(args, item.token);
  float* total = nullptr;
  if (keys > 0) {
    AttendPiece piece = begin_item(args, plan, item, scratch);
    total = piece.scores + kBlockKeys * kHeadLanes;
    float* next = total + plan.item_groups * plan.partial;
    attend_keys(isa, piece, 0, keys, total);
    for (std::int64_t index = 1; index < pieces_of(keys); ++index) {
      attend_keys(isa, piece, index, keys, next);
      for (std::int64_t g = 0; g < item.groups; ++g) isa.merge(total + g * plan.partial, next + g * plan.partial, piece.latent_chunks);
    }
  }
  for (std::int64_t g = 0; g < item.groups; ++g) {
    finish_group(args, isa, item.token, item.group + g, total == nullptr ? nullptr : total + g * plan.partial);
  }
}

void run_whole(const AttendLatentArgs& args, Lane& lane, const AttendFunctions& isa, const Plan& plan) {
  auto* workspace = reinterpret_cast<float*>(lane.workspace);
  const std::int64_t parts = (plan.groups + plan.item_groups - 1) / plan.item_groups;
  lane.pool.parallel_for(args.q.dim(0) * parts, [&](std::int64_t index, int thread) {
    const std::int64_t group = index % parts * plan.item_groups;
    const Item item{.token = index / parts, .group = group, .groups = std::min(plan.item_groups, plan.groups - group)};
    run_item(args, isa, plan, item, workspace + thread * plan.scratch);
  });
}

void run_split(const AttendLatentArgs& args, Lane& lane, const AttendFunctions& isa, const Plan& plan) {
  auto* workspace = reinterpret_cast<float*>(lane.workspace);
  float* partials = workspace + lane.pool.threads() * plan.scratch;  // [tokens][max_pieces][groups] of plan.partial
  const auto partial_of = [&](std::int64_t token, std::int64_t index, std::int64_t group) {
    return partials + ((token * plan.max_pieces + index) * plan.groups + group) * plan.partial;
  };
  // Groups innermost: those that run at the same time read the same rows.
  lane.pool.parallel_for(args.q.dim(0) * plan.max_pieces * plan.groups, [&](std::int64_t item, int thread) {
    const std::int64_t group = item % plan.groups;
    const std::int64_t index = item / plan.groups % plan.max_pieces;
    const std::int64_t token = item / plan.groups / plan.max_pieces;
    const std::int64_t keys = keys_of(args, token);
    if (index >= pieces_of(keys)) return;
    AttendPiece piece = begin_item(args, plan, {token, group, 1}, workspace + thread * plan.scratch);
    attend_keys(isa, piece, index, keys, partial_of(token, index, group));
  });
  lane.pool.parallel_for(args.q.dim(0) * plan.groups, [&](std::int64_t item, int) {
    const std::int64_t token = item / plan.groups;
    const std::int64_t group = item % plan.groups;
    const std::int64_t pieces = pieces_of(keys_of(args, token));
    for (std::int64_t index = 1; index < pieces; ++index) {
      isa.merge(partial_of(token, 0, group), partial_of(token, index, group), chunks_of(args.y.dim(2)));
    }
    finish_group(args, isa, token, group, pieces == 0 ? nullptr : partial_of(token, 0, group));
  });
}

void run(const AttendLatentArgs& args, Lane& lane, const AttendFunctions& isa) {
  const Plan how = plan(args, lane.pool.threads());
  if (how.split) {
    run_split(args, lane, isa, how);
  } else {
    run_whole(args, lane, isa, how);
  }
}

std::int64_t workspace_bytes(const AttendLatentArgs& args, int threads) {
  return plan(args, threads).total * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels() {
  return {{.name = "attend_latent.avx512",
           .supports = needs_avx512,
           .workspace_bytes = workspace_bytes,
           .run = [](const AttendLatentArgs& args, Lane& lane) { run(args, lane, avx512::attend_functions()); }},
          {.name = "attend_latent.avx2",
           .supports = needs_avx2,
           .workspace_bytes = workspace_bytes,
           .run = [](const AttendLatentArgs& args, Lane& lane) { run(args, lane, avx2::attend_functions()); }}};
}

}  // namespace reckoner
