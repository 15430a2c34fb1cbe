// The loops of a DotCore, over a format (dot_formats_*.inc.h). `Format` is what few() decodes, `Panel` what many() does: another one where
// few() multiplies sums of a few products by the block scale, and many() each weight.
//
// Bits: few() and many() add the same products in the same order into the same lanes, block of columns by block of columns.
#pragma once

#include "kernels/cpu/linear/dot.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

using Sum = decltype(F32::v);

#if defined(__AVX512F__)
inline constexpr int kTileTokens = 6;    // 6 x 4 sums, 6 vectors of x and one of w: 31 registers
inline constexpr int kTokensAtOnce = 4;  // that few() decodes once for
inline constexpr int kOneTokenRows = 8;  // whose sums few() forms together for one token
#else
inline constexpr int kTileTokens = 3;
inline constexpr int kTokensAtOnce = 2;
inline constexpr int kOneTokenRows = 4;
#endif
inline constexpr int kTileRows = 4;   // whose sums are formed together
inline constexpr int kRowsAhead = 4;  // how much earlier than it is decoded into the panel a row is asked for

template <class Format, class Panel>
struct Dot {
  using Element = typename Format::Element;
  using Scales = typename Format::Scales;

  // Columns whose sums stay in vectors. With kTileTokens rows of x and kTileRows of the panel they fit in L1, with kDotRows rows of the
  // panel in a part of L2.
  static constexpr std::int64_t kBlock = 3072 / static_cast<std::int64_t>(sizeof(Element));
  static constexpr std::int64_t kGroup = Format::kGroupSteps * Format::kStep;
  static constexpr std::int64_t kPanelStep = (Format::kVectors + Panel::kScaleVectors) * Format::kVector;  // of one row, in elements
  static constexpr std::int64_t kPanelBytes = kDotRows * kBlock / Format::kStep * kPanelStep * static_cast<std::int64_t>(sizeof(Element));
  static constexpr std::int64_t kTokensInL2 = 32;
  static_assert(kBlock % kGroup == 0);

  static void pack(const float* x, std::int64_t cols, std::byte* packed_bytes) {
    Element* packed = reinterpret_cast<Element*>(packed_bytes);
    std::int64_t col = 0;
    for (; col + Format::kStep <= cols; col += Format::kStep) Format::pack_step(x + col, packed + col);
    if (col == cols) return;
    float last[Format::kStep] = {};
    for (std::int64_t i = 0; col + i < cols; ++i) last[i] = x[col + i];
    Format::pack_step(last, packed + col);
  }

  RECKONER_INLINE static const Element* x_row(const DotTask& task, std::int64_t token) {
    const std::int64_t row = task.x_index != nullptr ? task.x_index[token] : token;
    return reinterpret_cast<const Element*>(task.x + row * task.x_stride_bytes);
  }
  RECKONER_INLINE static WeightRow weight_row(const DotTask& task, std::int64_t row) {
    return {task.data + row * task.row_bytes, task.scales + (task.first_row + row) / Format::kBlockRows * task.scale_row_bytes};
  }

  // y[first .. first + n) of one token. A block's sum is stored, then added to; the last one brings the scale.
  RECKONER_INLINE static void store_sums(float* y, __m128 sums, std::int64_t n) {
    if (n >= 4) {
      _mm_storeu_ps(y, sums);
      return;
    }
    alignas(16) float four[4];
    _mm_store_ps(four, sums);
    for (std::int64_t i = 0; i < n; ++i) y[i] = four[i];
  }

  // ---- Few tokens: decode in registers ----

  template <int kTokens, int kRows>
  struct Few {
    WeightRow w[kRows];         // [cols] each
    const Element* x[kTokens];  // [padded cols] each
    std::int64_t cols;
    Sum sum[kTokens][kRows];

    RECKONER_INLINE void add(std::int64_t col, int row, const typename Format::Decoded& decoded) {
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { sum[t][row] = Format::multiply_add(x[t] + col, decoded, sum[t][row]); });
    }
    RECKONER_INLINE void whole_group(std::int64_t col) {
      Scales s[kRows];
      unroll<kRows>([&](auto r) RECKONER_INLINE_BODY { s[r] = Format::scales(w[r], col, cols); });
      unroll<Format::kGroupSteps>([&](auto j) RECKONER_INLINE_BODY {
        const std::int64_t at = col + j * Format::kStep;
        unroll<kRows>([&](auto r) RECKONER_INLINE_BODY { add(at, r, Format::decode(w[r], at, s[r], j)); });
      });
    }
    RECKONER_INLINE void last_group(std::int64_t col, std::int64_t end) {
      unroll<kRows>([&](auto r) RECKONER_INLINE_BODY {
        const Scales s = Format::scales(w[r], col, cols);
        std::int64_t at = col;
        int j = 0;
        for (; at + Format::kStep <= end; at += Format::kStep, ++j) add(at, r, Format::decode(w[r], at, s, j));
        if (at < end) add(at, r, Format::decode_first(w[r], at, s, j, end - at));
      });
    }
    // Sums over columns [begin, end).
    RECKONER_INLINE void block(std::int64_t begin, std::int64_t end) {
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { unroll<kRows>([&](auto r) RECKONER_INLINE_BODY { sum[t][r] = zero().v; }); });
      std::int64_t col = begin;
      for (; col + kGroup <= end; col += kGroup) whole_group(col);
      if (col < end) last_group(col, end);
    }
  };

  template <int kTokens>
  [[gnu::noinline]] static void few_tokens(const DotTask& task, std::int64_t token) {
    constexpr int kRows = kTokens == 1 ? kOneTokenRows : kTileRows;
    Few<kTokens, kRows> few;
    few.cols = task.cols;
    unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { few.x[t] = x_row(task, token + t); });
    for (std::int64_t row = 0; row < task.rows; row += kRows) {
      // Rows beyond the last are the last one again, and not stored.
      unroll<kRows>([&](auto r) RECKONER_INLINE_BODY { few.w[r] = weight_row(task, row + r < task.rows ? row + r : task.rows - 1); });
      __m128 total[kTokens][kRows / 4] = {};
      for (std::int64_t begin = 0; begin < task.cols; begin += kBlock) {
        few.block(begin, begin + kBlock < task.cols ? begin + kBlock : task.cols);
        unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
          unroll<kRows / 4>([&](auto g) RECKONER_INLINE_BODY {
            Sum(&sum)[kRows] = few.sum[t];
            const __m128 sums = sum_lanes(sum[4 * g], sum[4 * g + 1], sum[4 * g + 2], sum[4 * g + 3]);
            total[t][g] = begin == 0 ? sums : _mm_add_ps(total[t][g], sums);
          });
        });
      }
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
        unroll<kRows / 4>([&](auto g) RECKONER_INLINE_BODY {
          const std::int64_t first = row + 4 * g;
          store_sums(task.y + (token + t) * task.y_stride + first, _mm_mul_ps(total[t][g], _mm_set1_ps(task.scale)), task.rows - first);
        });
      });
    }
  }

  static void few_rows(const DotTask& task) {
    std::int64_t token = 0;
    for (; token + kTokensAtOnce <= task.tokens; token += kTokensAtOnce) few_tokens<kTokensAtOnce>(task, token);
    unroll<kTokensAtOnce>([&](auto n) RECKONER_INLINE_BODY {
      if constexpr (n > 0) {
        if (task.tokens - token == n) few_tokens<n>(task, token);
      }
    });
  }
  static void few(const DotTask& task) {
    if (task.tokens <= kTokensAtOnce) {
      few_rows(task);
      return;
    }
    // A few rows at a time, so that they are still in a cache when the next tokens come to them.
    for (std::int64_t row = 0; row < task.rows; row += kOneTokenRows) {
      DotTask part = task;
      part.data += row * task.row_bytes;
      part.first_row += row;
      part.rows = row + kOneTokenRows < task.rows ? kOneTokenRows : task.rows - row;
      part.y += row;
      few_rows(part);
    }
  }

  // ---- Many tokens: decode a block of columns into a panel ----

  // Panel: [groups of kTileRows rows][steps of the block][vectors of a step][kTileRows] vectors, so that a tile reads it from front to
  // back.
  static void expand_row(const WeightRow& w, std::int64_t begin, std::int64_t end, std::int64_t cols, Element* panel) {
    constexpr std::int64_t kNext = kTileRows * Format::kVector;
    const auto put = [&](const typename Panel::Decoded& decoded) RECKONER_INLINE_BODY {
      unroll<Format::kVectors>([&](auto i) RECKONER_INLINE_BODY { Format::store(panel + i * kNext, decoded.v[i]); });
      if constexpr (Panel::kScaleVectors > 0) store(reinterpret_cast<float*>(panel + Format::kVectors * kNext), {decoded.scale});
      panel += kTileRows * kPanelStep;
    };
    std::int64_t col = begin;
    for (; col + kGroup <= end; col += kGroup) {
      const Scales s = Panel::scales(w, col, cols);
      unroll<Format::kGroupSteps>([&](auto j) RECKONER_INLINE_BODY { put(Panel::decode(w, col + j * Format::kStep, s, j)); });
    }
    if (col == end) return;
    const Scales s = Panel::scales(w, col, cols);
    int j = 0;
    for (; col + Format::kStep <= end; col += Format::kStep, ++j) put(Panel::decode(w, col, s, j));
    if (col < end) put(Panel::decode_first(w, col, s, j, end - col));
  }

  // The lines of a row that a block takes are too short a stream for the core's own prefetcher.
  RECKONER_INLINE static void prefetch(const WeightRow& w, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = Format::bytes(begin); at < Format::bytes(end); at += 64) {
      // Few lines go to L1; more would drive out x and the panel.
      _mm_prefetch(reinterpret_cast<const char*>(w.data + at), Format::bytes(kBlock) <= 1024 ? _MM_HINT_T0 : _MM_HINT_T1);
    }
  }

  // What the panel holds: some rows' block of columns.
  struct Block {
    std::int64_t first_row, end_row;  // of the task's
    std::int64_t begin, end;          // columns
    std::int64_t steps;               // of each row
    const Element* panel;
  };

  // A step of one row as few() decodes it, from a panel that holds scales.
  RECKONER_INLINE static typename Format::Decoded panel_step(const Element* panel) {
    constexpr std::int64_t kNext = kTileRows * Format::kVector;
    typename Format::Decoded decoded;
    unroll<Format::kVectors>([&](auto i) RECKONER_INLINE_BODY { decoded.v[i] = Format::load(panel + i * kNext); });
    decoded.scale = reckoner::RECKONER_ISA::load(reinterpret_cast<const float*>(panel + Format::kVectors * kNext)).v;
    return decoded;
  }

  // kTokens rows of x times all rows of the panel, added to y.
  template <int kTokens>
  [[gnu::noinline]] static void tile(const DotTask& task, const Block& block, std::int64_t token) {
    const Element* x[kTokens];
    unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { x[t] = x_row(task, token + t) + block.begin; });
    const Element* w = block.panel;
    for (std::int64_t row = block.first_row; row < block.end_row; row += kTileRows) {
      Sum sum[kTokens][kTileRows];
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { unroll<kTileRows>([&](auto r) RECKONER_INLINE_BODY { sum[t][r] = zero().v; }); });
      const std::int64_t end = block.steps * Format::kStep;
      if constexpr (Panel::kScaleVectors > 0) {
        for (std::int64_t at = 0; at < end; at += Format::kStep, w += kTileRows * kPanelStep) {
          unroll<kTileRows>([&](auto r) RECKONER_INLINE_BODY {
            const typename Format::Decoded w_at = panel_step(w + r * Format::kVector);
            unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { sum[t][r] = Format::multiply_add(x[t] + at, w_at, sum[t][r]); });
          });
        }
      } else {
        for (std::int64_t at = 0; at < end; at += Format::kVector, w += kTileRows * Format::kVector) {
          typename Format::Vector x_at[kTokens];
          unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { x_at[t] = Format::load(x[t] + at); });
          unroll<kTileRows>([&](auto r) RECKONER_INLINE_BODY {
            const typename Format::Vector w_at = Format::load(w + r * Format::kVector);
            unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { sum[t][r] = Format::multiply_add(x_at[t], w_at, sum[t][r]); });
          });
        }
      }
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
        add_block(task, block, token + t, row, sum_lanes(sum[t][0], sum[t][1], sum[t][2], sum[t][3]));
      });
    }
  }
  RECKONER_INLINE static void add_block(const DotTask& task, const Block& block, std::int64_t token, std::int64_t row, __m128 sums) {
    float* y = task.y + token * task.y_stride + row;
    const std::int64_t n = block.end_row - row;
    if (block.begin > 0) {
      alignas(16) float before[4] = {};
      for (std::int64_t i = 0; i < (n < 4 ? n : 4); ++i) before[i] = y[i];
      sums = _mm_add_ps(n >= 4 ? _mm_loadu_ps(y) : _mm_load_ps(before), sums);
    }
    if (block.end == task.cols) sums = _mm_mul_ps(sums, _mm_set1_ps(task.scale));
    store_sums(y, sums, n);
  }

  static void expand(const DotTask& task, const Block& block, Element* panel) {
    const std::int64_t rows = block.end_row - block.first_row;
    // A group's missing rows get the last row's weights: their sums are not stored.
    for (std::int64_t i = 0; i < (rows + kTileRows - 1) / kTileRows * kTileRows; ++i) {
      const std::int64_t row = block.first_row + (i < rows ? i : rows - 1);
      if (row + kRowsAhead < task.rows) prefetch(weight_row(task, row + kRowsAhead), block.begin, block.end);
      Element* to = panel + i / kTileRows * kTileRows * block.steps * kPanelStep + i % kTileRows * Format::kVector;
      expand_row(weight_row(task, row), block.begin, block.end, task.cols, to);
    }
  }

  static void many(const DotTask& task, std::byte* panel_bytes) {
    Element* panel = reinterpret_cast<Element*>(panel_bytes);
    // As long as a block of all x stays in L2, a panel in L1 that all of it passes is best; then the other way round.
    const std::int64_t panel_rows = task.tokens <= kTokensInL2 ? kTileRows : kDotRows;
    for (std::int64_t begin = 0; begin < task.cols; begin += kBlock) {
      const std::int64_t end = begin + kBlock < task.cols ? begin + kBlock : task.cols;
      const std::int64_t steps = (end - begin + Format::kStep - 1) / Format::kStep;
      for (std::int64_t row = 0; row < task.rows; row += panel_rows) {
        const std::int64_t end_row = row + panel_rows < task.rows ? row + panel_rows : task.rows;
        const Block block{.first_row = row, .end_row = end_row, .begin = begin, .end = end, .steps = steps, .panel = panel};
        expand(task, block, panel);
        all_tokens(task, block);
      }
    }
  }
  static void all_tokens(const DotTask& task, const Block& block) {
    std::int64_t token = 0;
    for (; token + kTileTokens <= task.tokens; token += kTileTokens) tile<kTileTokens>(task, block, token);
    unroll<kTileTokens>([&](auto n) RECKONER_INLINE_BODY {
      if constexpr (n > 0) {
        if (task.tokens - token == n) tile<n>(task, block, token);
      }
    });
  }
};

template <class Format, class Panel = Format>
constexpr DotCore dot_core() {
  using D = Dot<Format, Panel>;
  return {.step_cols = Format::kStep,
          .element_bytes = sizeof(typename Format::Element),
          .panel_bytes = D::kPanelBytes,
          .few_tokens = Format::kFewTokens,
          .pack = D::pack,
          .few = D::few,
          .many = D::many};
}

}  // namespace
}  // namespace reckoner::RECKONER_ISA
