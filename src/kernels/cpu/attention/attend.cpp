#include "kernels/cpu/attention/attend.h"

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

// What the driver needs to know of either op.
struct Attention {
  const Tensor& q;  // [tokens, heads, key width]
  const TokenPlaces& places;
  const CacheView& keys;       // rows of kv_heads keys
  const CacheView* values;     // rows of kv_heads values; nullptr: a value is the beginning of its key
  std::int64_t kv_heads;       // heads [i, i + 1) * heads / kv_heads read key and value i
  const Selection* selection;  // nullptr: attend to everything up to the token itself
  float scale;
  std::int64_t max_context;
  const Tensor& y;  // [tokens, heads, value width]
};

Attention attention_of(const AttendLatentArgs& args) {
  return {.q = args.q,
          .places = args.places,
          .keys = args.cache,
          .values = nullptr,
          .kv_heads = 1,
          .selection = args.selection.counts.shape.rank() != 0 ? &args.selection : nullptr,
          .scale = args.scale,
          .max_context = args.max_context,
          .y = args.y};
}

Attention attention_of(const AttendGroupedArgs& args) {
  return {.q = args.q,
          .places = args.places,
          .keys = args.keys,
          .values = &args.values,
          .kv_heads = args.kv_heads,
          .selection = nullptr,
          .scale = args.scale,
          .max_context = args.max_context,
          .y = args.y};
}

// How a call is cut into items, from shapes alone, and where its workspace lies (in floats).
struct Plan {
  bool pairs;                  // few heads read a key: see make_pair_panel
  std::int64_t kv_groups;      // groups of heads that read the same key and value
  std::int64_t groups;         // of all heads: those of kv head 0, then of kv head 1, ...
  std::int64_t item_groups;    // handled by one item, which packs each row once for all of them; of one kv head
  std::int64_t max_pieces;     // of a token
  bool split;                  // too few (token, group) for the threads: every piece is an item, merged afterwards
  std::int64_t partial;        // Partial::floats
  std::int64_t packed_values;  // packed_floats, when values are not part of the keys
  std::int64_t scratch;        // of a thread: panels, packed rows, scores, two partials
  std::int64_t total;
};

Plan plan(const Attention& call, int threads) {
  const std::int64_t tokens = call.q.dim(0);
  const std::int64_t key_width = call.q.dim(2);
  const std::int64_t value_width = call.y.dim(2);
  Plan plan{};
  plan.pairs = call.q.dim(1) / call.kv_heads <= kFewHeads;
  plan.kv_groups = head_groups(call.q.dim(1) / call.kv_heads);
  plan.groups = plan.kv_groups * call.kv_heads;
  plan.item_groups = tokens >= 2 * threads ? std::min(plan.kv_groups, kMaxItemGroups) : 1;
  const std::int64_t keys = call.selection != nullptr ? std::min(call.selection->top_k(), call.max_context) : call.max_context;
  plan.max_pieces = std::min(kMaxPieces, (keys + kPieceKeys - 1) / kPieceKeys);
  plan.split = threads > 1 && plan.max_pieces > 1 && tokens * plan.groups < 4 * threads;
  plan.partial = Partial::floats(value_width);
  plan.packed_values = call.values != nullptr ? packed_floats(value_width) : 0;
  plan.scratch = plan.item_groups * (panel_floats(key_width) + 2 * plan.partial) + packed_floats(key_width) + plan.packed_values +
                 kBlockKeys * kHeadLanes;
  plan.total = threads * plan.scratch + (plan.split ? tokens * plan.max_pieces * plan.groups * plan.partial : 0);
  return plan;
}

// One token and some of its groups of heads, all of one kv head.
struct Item {
  std::int64_t token;
  std::int64_t group;   // the first
  std::int64_t groups;  // how many
};

std::int64_t keys_of(const Attention& call, std::int64_t token) {
  return call.selection != nullptr ? call.selection->counts.i32()[token] : call.places.positions.i32()[token] + 1;
}

// The heads of a group.
struct Heads {
  std::int64_t first;
  std::int64_t count;
};

Heads heads_of(const Attention& call, const Plan& plan, std::int64_t group) {
  const std::int64_t shared = call.q.dim(1) / call.kv_heads;
  const std::int64_t first = group % plan.kv_groups * kHeadLanes;  // among those of its kv head
  return {.first = group / plan.kv_groups * shared + first, .count = std::min(kHeadLanes, shared - first)};
}

// The first piece of an item, its panels made; `scratch` is the thread's. `partials` stands unset.
AttendPiece begin_item(const Attention& call, const Plan& plan, const Item& item, float* scratch) {
  const std::int64_t key_width = call.q.dim(2);
  const std::int64_t value_width = call.y.dim(2);
  const std::int64_t kv_head = item.group / plan.kv_groups;
  float* packed_keys = scratch + plan.item_groups * panel_floats(key_width);
  float* packed_values = packed_keys + packed_floats(key_width);
  for (std::int64_t g = 0; g < item.groups; ++g) {
    const Heads heads = heads_of(call, plan, item.group + g);
    const float* q = call.q.f32() + (item.token * call.q.dim(1) + heads.first) * key_width;
    const auto make = plan.pairs ? make_pair_panel : make_panel;
    make(q, heads.count, key_width, call.scale, scratch + g * panel_floats(key_width));
  }
  return {.keys = cache_rows(call.keys),
          .key = {.first = kv_head * key_width, .width = key_width},
          .values = call.values != nullptr ? cache_rows(*call.values) : CacheRows{},
          .value = {.first = kv_head * value_width, .width = value_width},
          .pages = call.places.pages[static_cast<std::size_t>(item.token)],
          .positions = call.selection != nullptr ? call.selection->positions.i32() + item.token * call.selection->top_k() : nullptr,
          .groups = item.groups,
          .pairs = plan.pairs,
          .panels = scratch,
          .packed_keys = packed_keys,
          .packed_values = call.values != nullptr ? packed_values : packed_keys,
          .scores = packed_values + plan.packed_values,
          .partial_floats = plan.partial};
}

void attend_keys(const AttendFunctions& isa, AttendPiece& piece, std::int64_t index, std::int64_t keys, float* partials) {
  piece.first = index * piece_keys(keys);
  piece.count = std::min(piece_keys(keys), keys - piece.first);
  piece.partials = partials;
  isa.attend(piece);
}

// Writes y of a group of heads; `partial` is nullptr when the token attends to nothing.
void finish_group(const Attention& call, const AttendFunctions& isa, const Plan& plan, const Item& item, const float* partial) {
  const std::int64_t value_width = call.y.dim(2);
  const Heads heads = heads_of(call, plan, item.group);
  float* y = call.y.f32() + (item.token * call.y.dim(1) + heads.first) * value_width;
  if (partial == nullptr) {
    std::fill_n(y, heads.count * value_width, 0.0f);
  } else {
    isa.finish(partial, heads.count, value_width, y);
  }
}

// All pieces of an item, one after the other.
void run_item(const Attention& call, const AttendFunctions& isa, const Plan& plan, const Item& item, float* scratch) {
  const std::int64_t keys = keys_of(call, item.token);
  float* total = nullptr;
  if (keys > 0) {
    AttendPiece piece = begin_item(call, plan, item, scratch);
    total = piece.scores + kBlockKeys * kHeadLanes;
    float* next = total + plan.item_groups * plan.partial;
    attend_keys(isa, piece, 0, keys, total);
    for (std::int64_t index = 1; index < pieces_of(keys); ++index) {
      attend_keys(isa, piece, index, keys, next);
      for (std::int64_t g = 0; g < item.groups; ++g) isa.merge(total + g * plan.partial, next + g * plan.partial, chunks_of(call.y.dim(2)));
    }
  }
  for (std::int64_t g = 0; g < item.groups; ++g) {
    finish_group(call, isa, plan, {item.token, item.group + g, 1}, total == nullptr ? nullptr : total + g * plan.partial);
  }
}

void run_whole(const Attention& call, Lane& lane, const AttendFunctions& isa, const Plan& plan) {
  auto* workspace = reinterpret_cast<float*>(lane.workspace);
  const std::int64_t kv_parts = (plan.kv_groups + plan.item_groups - 1) / plan.item_groups;  // of one kv head
  const std::int64_t parts = kv_parts * call.kv_heads;
  lane.pool.parallel_for(call.q.dim(0) * parts, [&](std::int64_t index, int thread) {
    const std::int64_t first = index % kv_parts * plan.item_groups;
    const Item item{.token = index / parts,
                    .group = index % parts / kv_parts * plan.kv_groups + first,
                    .groups = std::min(plan.item_groups, plan.kv_groups - first)};
    run_item(call, isa, plan, item, workspace + thread * plan.scratch);
  });
}

void run_split(const Attention& call, Lane& lane, const AttendFunctions& isa, const Plan& plan) {
  auto* workspace = reinterpret_cast<float*>(lane.workspace);
  float* partials = workspace + lane.pool.threads() * plan.scratch;  // [tokens][max_pieces][groups] of plan.partial
  const auto partial_of = [&](std::int64_t token, std::int64_t index, std::int64_t group) {
    return partials + ((token * plan.max_pieces + index) * plan.groups + group) * plan.partial;
  };
  // Groups innermost: those that run at the same time read the same rows.
  lane.pool.parallel_for(call.q.dim(0) * plan.max_pieces * plan.groups, [&](std::int64_t item, int thread) {
    const std::int64_t group = item % plan.groups;
    const std::int64_t index = item / plan.groups % plan.max_pieces;
    const std::int64_t token = item / plan.groups / plan.max_pieces;
    const std::int64_t keys = keys_of(call, token);
    if (index >= pieces_of(keys)) return;
    AttendPiece piece = begin_item(call, plan, {token, group, 1}, workspace + thread * plan.scratch);
    attend_keys(isa, piece, index, keys, partial_of(token, index, group));
  });
  lane.pool.parallel_for(call.q.dim(0) * plan.groups, [&](std::int64_t item, int) {
    const std::int64_t token = item / plan.groups;
    const std::int64_t group = item % plan.groups;
    const std::int64_t pieces = pieces_of(keys_of(call, token));
    for (std::int64_t index = 1; index < pieces; ++index) {
      isa.merge(partial_of(token, 0, group), partial_of(token, index, group), chunks_of(call.y.dim(2)));
    }
    finish_group(call, isa, plan, {token, group, 1}, pieces == 0 ? nullptr : partial_of(token, 0, group));
  });
}

void run(const Attention& call, Lane& lane, const AttendFunctions& isa) {
  const Plan how = plan(call, lane.pool.threads());
  if (how.split) {
    run_split(call, lane, isa, how);
  } else {
    run_whole(call, lane, isa, how);
  }
}

template <class Args>
std::int64_t workspace_bytes(const Args& args, int threads) {
  return plan(attention_of(args), threads).total * static_cast<std::int64_t>(sizeof(float));
}

// The two kernels of an op, best first.
template <class Args>
std::vector<Kernel<Args>> kernels(std::string_view avx512_name, std::string_view avx2_name) {
  return {{.name = avx512_name,
           .supports = needs_avx512,
           .workspace_bytes = workspace_bytes<Args>,
           .run = [](const Args& args, Lane& lane) { run(attention_of(args), lane, avx512::attend_functions()); }},
          {.name = avx2_name, .supports = needs_avx2, .workspace_bytes = workspace_bytes<Args>, .run = [](const Args& args, Lane& lane) {
             run(attention_of(args), lane, avx2::attend_functions());
           }}};
}

}  // namespace

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels() {
  return kernels<AttendLatentArgs>("attend_latent.avx512", "attend_latent.avx2");
}
std::vector<Kernel<AttendGroupedArgs>> attend_grouped_kernels() {
  return kernels<AttendGroupedArgs>("attend_grouped.avx512", "attend_grouped.avx2");
}

}  // namespace reckoner
