// Spreads dot products over the threads of a lane: packs x, cuts weights into tiles of rows, hands each tile to the core.
#pragma once

#include "kernels/cpu/linear/dot.h"
#include "ops/kernel.h"

namespace reckoner {

// Rows of packed x, all of one width.
struct DotX {
  std::int64_t rows;
  std::int64_t cols;
};

// One weight and the rows of x that it meets.
struct DotGroup {
  Weight w;                     // [rows, cols]; the same number of rows in every group of a call
  std::int64_t x_first;         // packed row of its first token
  std::int64_t x_step;          // packed rows from one token to the next
  const std::int32_t* x_index;  // [tokens] packed rows instead (x_first 0, x_step 1); or nullptr
  std::int64_t tokens;
  float* y;  // of the first token and row
  std::int64_t y_stride;
};

// Workspace: packed x, then a panel for each thread, then what the caller keeps there.
class DotDriver {
 public:
  DotDriver(const DotCore& core, DotX x, int threads);

  std::int64_t workspace_bytes() const { return x_bytes() + panels_bytes(); }
  std::int64_t row_bytes() const { return row_bytes_; }

  // Packs `rows` rows into packed rows [0, rows): row i is source[i], or source[index[i]] where there is an index.
  void pack(Lane& lane, const float* source /* [*, cols] */, const std::int32_t* index /* [rows] or nullptr */, std::int64_t rows) const;

  // Runs group_at(0) ... group_at(groups - 1), a DotGroup each, in one parallel loop. `most_tokens`: of any group.
  template <class GroupAt>
  void run(Lane& lane, std::int64_t groups, std::int64_t rows, std::int64_t most_tokens, GroupAt&& group_at) const {
    const Tiles tiles = cut(lane, groups, rows, most_tokens);
    lane.pool.parallel_for(groups * tiles.of_rows * tiles.of_tokens, [&](std::int64_t item, int thread) {
      const std::int64_t tile = item % (tiles.of_rows * tiles.of_tokens);
      run_tile(lane, group_at(item / (tiles.of_rows * tiles.of_tokens)), tiles, tile, thread);
    });
  }

 private:
  struct Tiles {
    std::int64_t rows;       // of a weight, in a tile
    std::int64_t tokens;     // in a tile
    std::int64_t of_rows;    // tiles along the rows of a group
    std::int64_t of_tokens;  // tiles along its tokens
  };
  std::int64_t x_bytes() const { return x_.rows * row_bytes_; }
  std::int64_t panels_bytes() const { return threads_ * core_.panel_bytes; }
  Tiles cut(const Lane& lane, std::int64_t groups, std::int64_t rows, std::int64_t most_tokens) const;
  void run_tile(Lane& lane, const DotGroup& group, const Tiles& tiles, std::int64_t tile, int thread) const;

  const DotCore& core_;
  DotX x_;
  std::int64_t threads_;
  std::int64_t row_bytes_;  // from one packed row to the next
};

// Rows of x that are packed at a time: what fits in 16 MiB (at least 64), so that a long prompt does not hold memory that caches could
// use. A weight is decoded again for each such part.
std::int64_t dot_rows_at_a_time(const DotCore& core, std::int64_t cols, std::int64_t rows);

}  // namespace reckoner
