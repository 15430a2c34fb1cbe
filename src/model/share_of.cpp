#include "model/share_of.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "quant/column_part.h"

namespace reckoner {
namespace {

constexpr int kMostRanks = 64;
constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The rules name places in weights that could be written.
ModelWeights& named(const Model& model) { return const_cast<ModelWeights&>(model.weights); }

// Why a tensor cannot be divided; empty: it can.
std::string obstacle(const WeightRule& rule, const ModelConfig& config, const Weight* matrix, const Shape& shape, int ranks) {
  const std::int64_t heads = config.num_attention_heads;
  const std::int64_t key_heads = config.num_key_value_heads;
  const std::int64_t block = matrix == nullptr ? 1 : info(matrix->format).block_cols;
  const auto is_even = [&](std::int64_t count) { return count % ranks == 0; };
  const auto columns = [&]() -> std::string {
    const std::int64_t cols = shape[1];
    if (is_even(cols) && cols / ranks % block == 0) return {};
    return block == 1 ? fmt::format("{} columns", cols)
                      : fmt::format("{} columns in {}, whose scales cover {} each,", cols, info(matrix->format).name, block);
  };
  switch (rule.split) {
    case Split::whole:
    case Split::vocabulary:
      return {};
    case Split::rows:
      return is_even(shape[0]) ? "" : fmt::format("{} rows", shape[0]);
    case Split::columns:
      return columns();
    case Split::heads:
      return is_even(heads) ? "" : fmt::format("{} attention heads", heads);
    case Split::head_columns:
      return is_even(heads) ? columns() : fmt::format("{} attention heads", heads);
    case Split::key_heads:
      return is_even(key_heads) || ranks % key_heads == 0 ? "" : fmt::format("{} heads of keys and values", key_heads);
  }
  return {};
}

// The first tensor that cannot be divided, and why; empty: all can.
std::string first_obstacle(const Model& model, int ranks) {
  std::string found;
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    if (rule.split == Split::whole || !found.empty()) return;
    const Shape shape = rule.shape(model.config);
    for_each_place(rule, model.config, [&](WeightPlace place) {
      if (!found.empty()) return;
      const Weight* const matrix = rule.matrix == nullptr ? nullptr : &rule.matrix(named(model), place);
      const std::string why = obstacle(rule, model.config, matrix, shape, ranks);
      if (!why.empty())
        found = fmt::format("{}: {} cannot be divided among {} ranks", published_name(*model.family, rule, place), why, ranks);
    });
  });
  return found;
}

ModelConfig config_of_share(const ModelConfig& whole, Rank rank) {
  ModelConfig config = whole;
  config.num_attention_heads /= rank.count;
  config.num_key_value_heads = whole.is_mla() ? config.num_attention_heads : key_heads_part(whole.num_key_value_heads, rank).count;
  config.intermediate_size /= rank.count;
  config.moe_intermediate_size /= rank.count;
  return config;
}

// Which rows or columns of `total` a rank has.
Range part_of_tensor(Split split, const ModelConfig& config, std::int64_t total, Rank rank) {
  if (split != Split::key_heads) return nearly_even_part(total, rank);
  const Range heads = key_heads_part(config.num_key_value_heads, rank);
  const std::int64_t width = total / config.num_key_value_heads;
  return {heads.first * width, heads.count * width};
}

Weight matrix_part(const WeightRule& rule, const Model& whole, const Weight& matrix, Rank rank) {
  if (rule.split == Split::whole) return matrix;
  if (rule.split == Split::columns || rule.split == Split::head_columns) {
    const Range columns = part_of_tensor(rule.split, whole.config, matrix.cols, rank);
    return column_part(matrix, columns.first, columns.count);
  }
  const Range rows = part_of_tensor(rule.split, whole.config, matrix.rows, rank);
  return row_range(matrix, rows.first, rows.count);
}

Tensor vector_part(const WeightRule& rule, const Model& whole, const Tensor& vector, Rank rank) {
  if (rule.split == Split::whole) return vector;
  const Range part = part_of_tensor(rule.split, whole.config, vector.dim(0), rank);
  return vector.rows(part.first, part.count);
}

// Calls visit(matrix) for each matrix of a share, in its place.
template <class Visit>
void for_each_matrix(const Model& share, Visit&& visit) {
  for_each_rule(*share.family, share.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, share.config, [&](WeightPlace place) { visit(rule.matrix(named(share), place)); });
  });
}

std::int64_t packed_data_bytes(const Weight& part) { return aligned(part.rows * info(part.format).row_bytes(part.cols)); }
std::int64_t packed_bytes(const Weight& part) {
  return packed_data_bytes(part) + aligned(scale_rows(part) * info(part.format).scale_row_bytes(part.cols));
}

// Some rows of a matrix, and where they are copied to: nowhere if they can be used where they are.
struct ReadPiece {
  const Weight* matrix;
  std::int64_t first_row;
  std::int64_t rows;
  std::byte* data = nullptr;    // of row 0 of the matrix
  std::byte* scales = nullptr;  // the same
};

void add_pieces(const ReadPiece& all, std::vector<ReadPiece>& pieces) {
  constexpr std::int64_t kPieceBytes = 4 << 20;
  const std::int64_t row_bytes = info(all.matrix->format).row_bytes(all.matrix->cols);
  const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / std::max<std::int64_t>(1, row_bytes));
  for (std::int64_t first = 0; first < all.rows; first += step) {
    pieces.push_back(all);
    pieces.back().first_row = first;
    pieces.back().rows = std::min(step, all.rows - first);
  }
}

Status read_piece(const Model& share, const ReadPiece& piece) {
  const Weight& matrix = *piece.matrix;
  if (matrix.part_of == nullptr) return read_rows(share, matrix, piece.first_row, piece.rows);
  copy_data(matrix, piece.first_row, piece.rows, piece.data + piece.first_row * info(matrix.format).row_bytes(matrix.cols));
  if (piece.first_row == 0) copy_scales(matrix, 0, scale_rows(matrix), piece.scales);
  return check_scales(share, *matrix.part_of, piece.first_row, piece.rows);
}

}  // namespace

Status check_split(const Model& model, int ranks) {
  const std::string found = ranks == 1 ? "" : first_obstacle(model, ranks);
  if (found.empty()) return {};
  std::vector<int> possible;
  for (int count = 2; count <= kMostRanks; ++count) {
    if (first_obstacle(model, count).empty()) possible.push_back(count);
  }
  return Error{found, possible.empty() ? "no number of ranks can divide this model: leave --tp out"
                                       : fmt::format("numbers of ranks that can divide this model: {}", fmt::join(possible, ", "))};
}

Result<std::unique_ptr<Model>> share_of(const Model& whole, Rank rank) {
  TRY(check_split(whole, rank.count));
  auto share = std::make_unique<Model>();
  share->config = config_of_share(whole.config, rank);
  share->quant = whole.quant;
  share->family = whole.family;
  share->whole = &whole;
  share->rank = rank;
  ModelWeights& weights = share->weights;
  weights.embed = whole.weights.embed;
  weights.layers = whole.weights.layers;
  weights.final_norm = whole.weights.final_norm;
  for_each_rule(*whole.family, whole.config, [&](const WeightRule& rule) {
    for_each_place(rule, whole.config, [&](WeightPlace place) {
      if (rule.matrix != nullptr) {
        rule.matrix(weights, place) = matrix_part(rule, whole, rule.matrix(named(whole), place), rank);
        share->weight_bytes += weight_bytes(rule.matrix(weights, place));
      } else {
        rule.vector(weights, place) = vector_part(rule, whole, rule.vector(named(whole), place), rank);
        share->weight_bytes += rule.vector(weights, place).bytes();
      }
    });
  });
  if (whole.config.tie_word_embeddings) {
    const Range rows = nearly_even_part(whole.config.vocab_size, rank);
    weights.lm_head = row_range(weights.embed, rows.first, rows.count);
  }
  return share;
}

std::int64_t copied_bytes(const Model& share) {
  std::int64_t bytes = 0;
  for_each_matrix(share, [&](const Weight& matrix) {
    if (matrix.part_of != nullptr) bytes += packed_bytes(matrix);
  });
  return bytes;
}

Status read_share(Model& share, ThreadPool& pool, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Buffer copies(copied_bytes(share));
  std::byte* next = copies.data();
  std::vector<ReadPiece> pieces;
  std::vector<std::pair<Weight*, Weight>> packed;  // a place, and what will be there
  for_each_matrix(share, [&](Weight& matrix) {
    ReadPiece all{.matrix = &matrix, .first_row = 0, .rows = matrix.rows};
    if (matrix.part_of != nullptr) {
      all.data = next;
      all.scales = next + packed_data_bytes(matrix);
      next += packed_bytes(matrix);
      packed.emplace_back(&matrix, packed_part(matrix, all.data, all.scales));
    }
    add_pieces(all, pieces);
  });
  std::vector<Status> results(pieces.size());
  std::atomic<std::int64_t> done = 0;
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t item, int thread) {
    const ReadPiece& piece = pieces[static_cast<std::size_t>(item)];
    results[static_cast<std::size_t>(item)] = read_piece(share, piece);
    done += weight_bytes(*piece.matrix) / piece.matrix->rows * piece.rows;
    if (thread == 0 && progress) progress(done, share.weight_bytes);
  });
  for (Status& result : results) TRY(std::move(result));
  for (const auto& [place, matrix] : packed) *place = matrix;
  share.weights.owners.push_back(std::move(copies));
  if (progress) progress(share.weight_bytes, share.weight_bytes);
  return {};
}

Range vocabulary_part(const Model& share) { return nearly_even_part(share.config.vocab_size, share.rank); }

}  // namespace reckoner
