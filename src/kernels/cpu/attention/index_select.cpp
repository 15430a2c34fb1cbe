#include "kernels/cpu/attention/index_select.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/cpu/attention/index_piece.h"
#include "kernels/cpu/supports.h"

namespace reckoner {
namespace {

// Tokens scored at a time; the workspace holds a row of scores for each.
constexpr std::int64_t kBlockTokens = 8;
// Keys of one item of work: some tens of microseconds for one token.
constexpr std::int64_t kPieceKeys = 512;

// Where the workspace of a call lies, in elements of 4 bytes; from shapes alone.
struct Plan {
  std::int64_t block_tokens;
  std::int64_t groups;   // of heads
  std::int64_t panels;   // of a token: panels, then weights
  std::int64_t images;   // of a token
  std::int64_t scratch;  // of a thread: packed rows or histograms
  std::int64_t total;
};

Plan plan(const IndexSelectArgs& args, int threads) {
  Plan plan{};
  plan.block_tokens = std::min(kBlockTokens, args.q.dim(0));
  plan.groups = head_groups(args.q.dim(1));
  plan.panels = plan.groups * (panel_floats(args.q.dim(2)) + kHeadLanes);
  plan.images = round_up(args.max_context, kBlockKeys);
  plan.scratch = std::max(packed_floats(args.q.dim(2)), kHistograms * kBins);
  const bool scores_needed = args.max_context > args.selection.top_k();
  plan.total = scores_needed ? plan.block_tokens * (plan.panels + plan.images) + threads * plan.scratch : 0;
  return plan;
}

// Up to kBlockTokens tokens that need scores, in the order of the call, and their runs of one sequence.
struct Block {
  std::int64_t count = 0;
  std::array<std::int64_t, kBlockTokens> index;  // of the token in the call
  std::array<IndexToken, kBlockTokens> tokens;
  // Run r holds the tokens [run_begin[r], run_begin[r + 1]) and the items [item_begin[r], item_begin[r + 1]).
  std::int64_t runs = 0;
  std::array<std::int64_t, kBlockTokens + 1> run_begin;
  std::array<std::int64_t, kBlockTokens + 1> item_begin;
};

// A call in progress.
struct Call {
  const IndexSelectArgs& args;
  Lane& lane;
  const IndexFunctions& isa;
  Plan plan;

  const std::int32_t* pages(std::int64_t token) const { return args.places.pages[static_cast<std::size_t>(token)]; }
  std::int64_t context(std::int64_t token) const { return std::int64_t{args.places.positions.i32()[token]} + 1; }
  float* scratch(int thread) const {
    return reinterpret_cast<float*>(lane.workspace) + plan.block_tokens * (plan.panels + plan.images) + thread * plan.scratch;
  }
};

void select_everything(const Call& call) {
  const Selection& selection = call.args.selection;
  const std::int64_t top_k = selection.top_k();
  constexpr std::int64_t kGrain = 16;  // tokens of an item
  const std::int64_t tokens = call.args.q.dim(0);
  call.lane.pool.parallel_for((tokens + kGrain - 1) / kGrain, [&](std::int64_t item, int) {
    for (std::int64_t token = item * kGrain; token < std::min(tokens, (item + 1) * kGrain); ++token) {
      const std::int64_t context = call.context(token);
      selection.counts.i32()[token] = static_cast<std::int32_t>(std::min(context, top_k));
      std::int32_t* positions = selection.positions.i32() + token * top_k;
      if (context <= top_k) std::iota(positions, positions + context, 0);
    }
  });
}

// The next tokens from `next` on that need scores; `next` moves behind them.
Block next_block(const Call& call, std::int64_t& next) {
  Block block;
  auto* panels = reinterpret_cast<float*>(call.lane.workspace);
  auto* images = reinterpret_cast<std::int32_t*>(panels + call.plan.block_tokens * call.plan.panels);
  for (; next < call.args.q.dim(0) && block.count < kBlockTokens; ++next) {
    const std::int64_t context = call.context(next);
    if (context <= call.args.selection.top_k()) continue;
    CHECK(context <= call.args.max_context, "index_select: a position at or above max_context");
    const auto slot = static_cast<std::size_t>(block.count++);
    const float* panel = panels + static_cast<std::int64_t>(slot) * call.plan.panels;
    block.index[slot] = next;
    block.tokens[slot] = {.context = context,
                          .panels = panel,
                          .weights = panel + call.plan.groups * panel_floats(call.args.q.dim(2)),
                          .images = images + static_cast<std::int64_t>(slot) * call.plan.images};
  }
  return block;
}

void find_runs(const Call& call, Block& block) {
  block.item_begin[0] = 0;
  for (std::int64_t token = 0; token < block.count; ++block.runs) {
    const auto run = static_cast<std::size_t>(block.runs);
    const std::int32_t* pages = call.pages(block.index[static_cast<std::size_t>(token)]);
    block.run_begin[run] = token;
    std::int64_t context = 0;
    for (; token < block.count && call.pages(block.index[static_cast<std::size_t>(token)]) == pages; ++token) {
      context = std::max(context, block.tokens[static_cast<std::size_t>(token)].context);
    }
    block.run_begin[run + 1] = token;
    block.item_begin[run + 1] = block.item_begin[run] + (context + kPieceKeys - 1) / kPieceKeys;
  }
}

void make_panels(const Call& call, const Block& block) {
  const std::int64_t heads = call.args.q.dim(1);
  const std::int64_t dim = call.args.q.dim(2);
  call.lane.pool.parallel_for(block.count, [&](std::int64_t slot, int) {
    const std::int64_t token = block.index[static_cast<std::size_t>(slot)];
    float* panels = reinterpret_cast<float*>(call.lane.workspace) + slot * call.plan.panels;
    float* weights = panels + call.plan.groups * panel_floats(dim);
    for (std::int64_t group = 0; group < call.plan.groups; ++group) {
      const std::int64_t head = group * kHeadLanes;
      const std::int64_t count = std::min(kHeadLanes, heads - head);
      make_panel(call.args.q.f32() + (token * heads + head) * dim, count, dim, 1.0f, panels + group * panel_floats(dim));
      for (std::int64_t i = 0; i < kHeadLanes; ++i) {
        weights[head + i] = i < count ? call.args.weights.f32()[token * heads + head + i] * call.args.scale : 0.0f;
      }
    }
  });
}

void score(const Call& call, const Block& block) {
  const CacheRows rows = cache_rows(call.args.keys);
  call.lane.pool.parallel_for(block.item_begin[static_cast<std::size_t>(block.runs)], [&](std::int64_t item, int thread) {
    std::size_t run = 0;
    while (item >= block.item_begin[run + 1]) ++run;
    IndexPiece piece{.rows = rows,
                     .pages = call.pages(block.index[static_cast<std::size_t>(block.run_begin[run])]),
                     .first = (item - block.item_begin[run]) * kPieceKeys,
                     .count = 0,
                     .groups = call.plan.groups,
                     .tokens = block.tokens.data() + block.run_begin[run],
                     .token_count = block.run_begin[run + 1] - block.run_begin[run],
                     .packed = call.scratch(thread)};
    for (std::int64_t t = 0; t < piece.token_count; ++t) {
      piece.count = std::max(piece.count, std::min(kPieceKeys, piece.tokens[t].context - piece.first));
    }
    call.isa.score(piece);
  });
}

void select(const Call& call, const Block& block) {
  const std::int64_t top_k = call.args.selection.top_k();
  call.lane.pool.parallel_for(block.count, [&](std::int64_t slot, int thread) {
    const IndexToken& token = block.tokens[static_cast<std::size_t>(slot)];
    call.isa.select(token.images, token.context, top_k,
                    call.args.selection.positions.i32() + block.index[static_cast<std::size_t>(slot)] * top_k,
                    reinterpret_cast<std::uint32_t*>(call.scratch(thread)));
  });
}

void run(const IndexSelectArgs& args, Lane& lane, const IndexFunctions& isa) {
  const Call call{args, lane, isa, plan(args, lane.pool.threads())};
  select_everything(call);
  if (args.selection.top_k() == 0) return;
  for (std::int64_t next = 0;;) {
    Block block = next_block(call, next);
    if (block.count == 0) return;
    find_runs(call, block);
    make_panels(call, block);
    score(call, block);
    select(call, block);
  }
}

std::int64_t workspace_bytes(const IndexSelectArgs& args, int threads) {
  return plan(args, threads).total * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::vector<Kernel<IndexSelectArgs>> index_select_kernels() {
  return {{.name = "index_select.avx512",
           .supports = needs_avx512,
           .workspace_bytes = workspace_bytes,
           .run = [](const IndexSelectArgs& args, Lane& lane) { run(args, lane, avx512::index_functions()); }},
          {.name = "index_select.avx2",
           .supports = needs_avx2,
           .workspace_bytes = workspace_bytes,
           .run = [](const IndexSelectArgs& args, Lane& lane) { run(args, lane, avx2::index_functions()); }}};
}

}  // namespace reckoner
