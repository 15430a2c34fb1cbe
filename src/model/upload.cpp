#include "model/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "quant/column_part.h"

namespace reckoner {
namespace {

constexpr std::int64_t kPieceBytes = 8 << 20;

// A run of bytes that goes over in one copy. Of a matrix's rows, to be checked on the way, or of anything else.
struct Piece {
  const std::byte* from;  // nullptr: columns of a matrix, which are copied together on the way
  std::int64_t offset;    // in the device's memory
  std::int64_t bytes;
  const Weight* matrix = nullptr;  // in the checkpoint
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  bool is_scales = false;  // rows of the scales of columns

  void read(std::byte* to) const {
    if (from != nullptr) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    } else if (is_scales) {
      copy_scales(*matrix, first_row, rows, to);
    } else {
      copy_data(*matrix, first_row, rows, to);
    }
  }
  Status check(const Model& model) const {
    if (matrix == nullptr || is_scales) return {};
    return check_scales(model, matrix->part_of != nullptr ? *matrix->part_of : *matrix, first_row, rows);
  }
};

// Where everything goes. Made twice: without memory to learn how much is needed, and with it.
class Plan {
 public:
  Plan(const Model& model, std::byte* base) : base_(base) {
    auto& from = const_cast<ModelWeights&>(model.weights);  // the rules name places in weights that could be written
    weights.layers = from.layers;
    weights.embed = from.embed;
    weights.lm_head = from.lm_head;
    weights.final_norm = from.final_norm;
    for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
      for_each_place(rule, model.config, [&](WeightPlace place) {
        if (rule.matrix != nullptr) {
          put_matrix(rule.matrix(from, place), rule.matrix(weights, place));
        } else {
          put_vector(rule.vector(from, place), rule.vector(weights, place));
        }
      });
    });
    if (model.config.tie_word_embeddings)
      weights.lm_head = row_range(weights.embed, from.lm_head.first_row - from.embed.first_row, from.lm_head.rows);
  }

  ModelWeights weights;
  std::vector<Piece> pieces;
  std::int64_t bytes = 0;

 private:
  std::int64_t take(std::int64_t size) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t offset = bytes;
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  std::byte* at(std::int64_t offset) const { return base_ == nullptr ? nullptr : base_ + offset; }

  std::byte* put_bytes(const std::byte* from, std::int64_t size) {
    const std::int64_t offset = take(size);
    for (std::int64_t done = 0; done < size; done += kPieceBytes)
      pieces.push_back({.from = from + done, .offset = offset + done, .bytes = std::min(kPieceBytes, size - done)});
    return at(offset);
  }

  std::byte* put_scales_of_part(const Weight& part) {
    const std::int64_t row_bytes = info(part.format).scale_row_bytes(part.cols);
    const std::int64_t all = scale_rows(part);
    const std::int64_t offset = take(all * row_bytes);
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / std::max<std::int64_t>(1, row_bytes));
    for (std::int64_t first = 0; first < all; first += step) {
      const std::int64_t rows = std::min(step, all - first);
      pieces.push_back({.from = nullptr,
                        .offset = offset + first * row_bytes,
                        .bytes = rows * row_bytes,
                        .matrix = &part,
                        .first_row = first,
                        .rows = rows,
                        .is_scales = true});
    }
    return at(offset);
  }

  void put_vector(const Tensor& from, Tensor& to) {
    to = from;
    if (!from.empty()) to.data = put_bytes(from.data, from.bytes());
  }

  void put_matrix(const Weight& from, Weight& to) {
    const FormatInfo& format = info(from.format);
    const std::int64_t row_bytes = format.row_bytes(from.cols);
    const std::int64_t offset = take(from.rows * row_bytes);
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / row_bytes);
    for (std::int64_t first = 0; first < from.rows; first += step) {
      const std::int64_t rows = std::min(step, from.rows - first);
      pieces.push_back({.from = from.part_of != nullptr ? nullptr : from.data + first * row_bytes,
                        .offset = offset + first * row_bytes,
                        .bytes = rows * row_bytes,
                        .matrix = &from,
                        .first_row = first,
                        .rows = rows});
    }
    if (from.part_of != nullptr) {
      to = packed_part(from, at(offset), put_scales_of_part(from));
      return;
    }
    to = from;
    to.data = at(offset);
    if (from.scales == nullptr) return;
    // Of a part of a larger matrix only the scale rows that it reads.
    to.first_row = from.first_row % format.block_rows;
    const std::int64_t scale_rows = (to.first_row + from.rows + format.block_rows - 1) / format.block_rows;
    to.scales = put_bytes(scale_row(from, 0), scale_rows * format.scale_row_bytes(from.cols));
  }

  std::byte* base_;
};

// What each thread copies through: a stream and pinned memory of its own, so that one reads while others copy.
class Lanes {
 public:
  Lanes(DeviceMemory& memory, int threads, std::int64_t piece_bytes) : memory_(memory) {
    for (int thread = 0; thread < threads; ++thread) {
      streams_.push_back(memory.make_stream());
      staging_.emplace_back(piece_bytes, &memory, BufferKind::pinned);
    }
  }
  ~Lanes() {
    for (const Stream stream : streams_) memory_.release_stream(stream);
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void copy(int thread, const Piece& piece, std::byte* base) {
    const auto lane = static_cast<std::size_t>(thread);
    piece.read(staging_[lane].data());
    memory_.copy_in(streams_[lane], base + piece.offset, staging_[lane].data(), piece.bytes);
    memory_.synchronise(streams_[lane]);
  }

 private:
  DeviceMemory& memory_;
  std::vector<Stream> streams_;
  std::vector<Buffer> staging_;
};

Status check_room(std::int64_t needed, DeviceMemory& memory) {
  const std::int64_t free = memory.free_bytes();
  TRY(memory.status());
  if (needed <= free) return {};
  return Error{fmt::format("the weights need {:.2f} GB of GPU memory, {:.2f} GB of {} are free", static_cast<double>(needed) / 1e9,
                           static_cast<double>(free) / 1e9, memory.info().name),
               "close what else uses the GPU, choose a smaller quantisation (`reckoner quantize`), or use --device cpu"};
}

}  // namespace

std::int64_t upload_bytes(const Model& model) { return Plan(model, nullptr).bytes; }

Result<ModelWeights> upload_weights(const Model& model, DeviceMemory& memory, ThreadPool& pool,
                                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  TRY(check_room(upload_bytes(model), memory));
  Buffer owner(upload_bytes(model), &memory);
  TRY(memory.status());
  Plan plan(model, owner.data());
  std::int64_t largest = 1;
  for (const Piece& piece : plan.pieces) largest = std::max(largest, piece.bytes);
  Lanes lanes(memory, pool.threads(), largest);
  TRY(memory.status());

  std::vector<Status> results(plan.pieces.size());
  std::atomic<std::int64_t> done = 0;
  pool.parallel_for(static_cast<std::int64_t>(plan.pieces.size()), [&](std::int64_t item, int thread) {
    const Piece& piece = plan.pieces[static_cast<std::size_t>(item)];
    results[static_cast<std::size_t>(item)] = piece.check(model);
    lanes.copy(thread, piece, owner.data());
    done += piece.bytes;
    if (thread == 0 && progress) progress(done, plan.bytes);
  });
  for (Status& result : results) TRY(std::move(result));
  TRY(memory.status());
  if (progress) progress(plan.bytes, plan.bytes);
  plan.weights.owners.push_back(std::move(owner));
  return std::move(plan.weights);
}

}  // namespace reckoner
