#include "kernels/cpu/linear/dot_driver.h"

#include <algorithm>

#include "quant/fp8.h"

namespace reckoner {
namespace {

static_assert(kDotBlockSide == kFp8Block);

constexpr std::int64_t kPackedBytes = 16 << 20;
constexpr std::int64_t kLeastRowsAtATime = 64;
constexpr std::int64_t kFewRows = 32;        // rows of a weight in an item of few tokens: enough to stream, little enough to share out
constexpr std::int64_t kTokensPerItem = 48;  // at least, where tokens are split: decoding a tile must be worth it
constexpr std::int64_t kSerialElements = 1 << 15;  // packing fewer is over before another thread would start
constexpr std::int64_t kPackRows = 4;              // in an item of packing

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Whole steps, whole cache lines, and one line more: rows whose distance is a power of two would share few sets of a cache.
std::int64_t packed_row_bytes(const DotCore& core, std::int64_t cols) {
  const std::int64_t padded = divide_up(cols, core.step_cols) * core.step_cols;
  return divide_up(padded * core.element_bytes, 64) * 64 + 64;
}

}  // namespace

std::int64_t dot_rows_at_a_time(const DotCore& core, std::int64_t cols, std::int64_t rows) {
  return std::min(rows, std::max(kLeastRowsAtATime, kPackedBytes / packed_row_bytes(core, cols)));
}

DotDriver::DotDriver(const DotCore& core, DotX x, int threads)
    : core_(core), x_(x), threads_(threads), row_bytes_(packed_row_bytes(core, x.cols)) {}

void DotDriver::pack(Lane& lane, const float* source, const std::int32_t* index, std::int64_t rows) const {
  CHECK(rows <= x_.rows);
  const auto pack_rows = [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t from = index != nullptr ? index[row] : row;
      core_.pack(source + from * x_.cols, x_.cols, lane.workspace + row * row_bytes_);
    }
  };
  if (rows * x_.cols <= kSerialElements) {
    pack_rows(0, rows);
  } else {
    lane.pool.parallel_for(divide_up(rows, kPackRows),
                           [&](std::int64_t item, int) { pack_rows(item * kPackRows, std::min(rows, (item + 1) * kPackRows)); });
  }
}

DotDriver::Tiles DotDriver::cut(const Lane& lane, std::int64_t groups, std::int64_t rows, std::int64_t most_tokens) const {
  const std::int64_t tile_rows = most_tokens <= core_.few_tokens ? kFewRows : kDotRows;
  const std::int64_t of_rows = divide_up(rows, tile_rows);
  // Many threads and few rows: share out the tokens too.
  const std::int64_t wanted = lane.pool.threads() > 1 ? 3 * lane.pool.threads() : 1;
  const std::int64_t splits =
      std::clamp<std::int64_t>(wanted / std::max<std::int64_t>(1, groups * of_rows), 1, divide_up(most_tokens, kTokensPerItem));
  const std::int64_t tokens = std::max<std::int64_t>(1, divide_up(most_tokens, splits));
  return {.rows = tile_rows, .tokens = tokens, .of_rows = of_rows, .of_tokens = divide_up(most_tokens, tokens)};
}

void DotDriver::run_tile(Lane& lane, const DotGroup& group, const Tiles& tiles, std::int64_t tile, int thread) const {
  const std::int64_t row = tile / tiles.of_tokens * tiles.rows;
  const std::int64_t token = tile % tiles.of_tokens * tiles.tokens;
  if (token >= group.tokens) return;
  const FormatInfo& format = info(group.w.format);
  const std::int64_t data_row = format.row_bytes(group.w.cols);
  const std::int64_t scale_row_bytes = format.scale_row_bytes(group.w.cols);
  const bool by_index = group.x_index != nullptr;
  const DotTask task{.data = group.w.data + row * data_row,
                     .scales = group.w.scales,
                     .first_row = group.w.first_row + row,
                     .row_bytes = data_row,
                     .scale_row_bytes = scale_row_bytes,
                     .scale = group.w.scale,
                     .rows = std::min(tiles.rows, group.w.rows - row),
                     .cols = group.w.cols,
                     .x = lane.workspace + (by_index ? 0 : group.x_first + token * group.x_step) * row_bytes_,
                     .x_stride_bytes = by_index ? row_bytes_ : group.x_step * row_bytes_,
                     .x_index = by_index ? group.x_index + token : nullptr,
                     .tokens = std::min(tiles.tokens, group.tokens - token),
                     .y = group.y + token * group.y_stride + row,
                     .y_stride = group.y_stride};
  // By the group's tokens, not by the tile's: so the choice does not depend on the number of threads.
  if (group.tokens <= core_.few_tokens) {
    core_.few(task);
  } else {
    core_.many(task, lane.workspace + x_bytes() + thread * core_.panel_bytes);
  }
}

}  // namespace reckoner
