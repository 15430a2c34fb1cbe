#include "convert/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "quant/resolve.h"

namespace reckoner {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
// What a window reads of the source: it is read twice where a scale belongs to a whole matrix, the second time from memory.
constexpr std::int64_t kWindowBytes = std::int64_t{256} << 20;
// Pieces are multiples of this many rows, so that no block of scales is cut.
constexpr std::int64_t kRowMultiple = 128;

// What a thread does at a time: rows of a matrix, or bytes of a tensor that is copied.
struct Piece {
  const OutputMatrix* matrix = nullptr;
  const OutputUnit* unit = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

std::int64_t source_bytes(const Piece& piece) {
  return piece.matrix == nullptr ? piece.count : weight_bytes(row_range(piece.matrix->source, piece.first, piece.count));
}

std::vector<Piece> pieces_of(const OutputUnit& unit) {
  std::vector<Piece> pieces;
  const std::int64_t bytes = unit.copied == nullptr ? 0 : unit.copied->tensor.bytes();
  for (std::int64_t first = 0; first < bytes; first += kPieceBytes)
    pieces.push_back({.unit = &unit, .first = first, .count = std::min(kPieceBytes, bytes - first)});
  for (const OutputMatrix& matrix : unit.matrices) {
    const std::int64_t rows = std::max<std::int64_t>(1, kPieceElements / matrix.source.cols / kRowMultiple) * kRowMultiple;
    for (std::int64_t first = 0; first < matrix.source.rows; first += rows)
      pieces.push_back({.matrix = &matrix, .unit = &unit, .first = first, .count = std::min(rows, matrix.source.rows - first)});
  }
  return pieces;
}

// Errors of several threads: the first one counts.
class FirstError {
 public:
  void add(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }
  bool failed() const { return failed_; }
  Status status() {
    if (error_) return *error_;
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> failed_ = false;
};

class Window {
 public:
  Window(const ShardWork& work, const OutputFile& file)
      : work_(work), file_(file), scratch_(static_cast<std::size_t>(work.pool.threads())) {}

  std::int64_t bytes() const { return bytes_; }
  void add(const OutputUnit& unit) {
    for (const Piece& piece : pieces_of(unit)) {
      bytes_ += source_bytes(piece);
      pieces_.push_back(piece);
    }
    if (!unit.matrices.empty()) largest_.emplace(unit.matrices.front().group, 0);
  }

  // Returns false when it was stopped.
  Result<bool> write() {
    if (work_.plan.options.format == QuantFormat::nvfp4) for_each_piece([&](const Piece& piece, int thread) { measure(piece, thread); });
    for_each_piece([&](const Piece& piece, int thread) { write_piece(piece, thread); });
    pieces_.clear();
    largest_.clear();
    bytes_ = 0;
    TRY(errors_.status());
    return !stopped_;
  }

 private:
  template <class Visit>
  void for_each_piece(Visit&& visit) {
    work_.pool.parallel_for(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t item, int thread) {
      if (stopped_ || errors_.failed()) return;
      if (work_.stop && work_.stop()) {
        stopped_ = true;
        return;
      }
      visit(pieces_[static_cast<std::size_t>(item)], thread);
    });
  }

  // The piece's rows as floats; nothing if one is not finite, which is an error.
  std::span<const float> expand(const Piece& piece, int thread, float& largest) {
    const Weight& w = piece.matrix->source;
    std::vector<float>& values = scratch_[static_cast<std::size_t>(thread)];
    values.resize(static_cast<std::size_t>(piece.count * w.cols));
    for (std::int64_t row = 0; row < piece.count; ++row)
      info(w.format).dequantise(w, piece.first + row, 0, w.cols, values.data() + row * w.cols);
    largest = largest_magnitude(values);
    if (std::isfinite(largest)) return values;
    const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
    errors_.add({fmt::format("{}: expected finite values, found {} in row {}", work_.checkpoint.locate(std::string(w.name) + ".weight"),
                             *bad, piece.first + (bad - values.begin()) / w.cols),
                 "the source is damaged or its export went wrong: fetch another copy"});
    return {};
  }

  // The largest magnitude of all matrices that share a scale.
  void measure(const Piece& piece, int thread) {
    if (piece.matrix == nullptr || piece.matrix->format != QuantFormat::nvfp4) return;
    float largest = 0;
    expand(piece, thread, largest);
    const std::lock_guard lock(mutex_);
    float& known = largest_[piece.matrix->group];
    known = std::max(known, largest);
  }

  void write_piece(const Piece& piece, int thread) {
    const Status written = piece.matrix == nullptr ? copy(piece) : pack(piece, thread);
    if (!written) return errors_.add(written.error());
    if (work_.done) work_.done(source_bytes(piece));
  }

  Status copy(const Piece& piece) {
    const CheckpointTensor& tensor = *piece.unit->copied;
    TRY(file_.write(piece.unit->copy.offset + piece.first, {tensor.tensor.data + piece.first, static_cast<std::size_t>(piece.count)}));
    drop(tensor.tensor.data + piece.first, piece.count);
    return {};
  }

  Status pack(const Piece& piece, int thread) {
    const OutputMatrix& matrix = *piece.matrix;
    float largest = 0;
    const std::span<const float> values = expand(piece, thread, largest);
    if (values.empty()) return errors_.status();
    const FormatInfo& format = info(matrix.format);
    const PackOptions options{.largest = matrix.format == QuantFormat::nvfp4 ? largest_.at(matrix.group) : 0};
    for (const PackedTensor& packed : format.pack(values, piece.count, matrix.source.cols, options)) TRY(write_part(piece, packed));
    if (matrix.format == QuantFormat::nvfp4 && piece.first == 0) TRY(write_input_scale(matrix));
    drop_rows(row_range(matrix.source, piece.first, piece.count));
    return {};
  }

  void drop_rows(const Weight& rows) const {
    drop(rows.data, rows.rows * info(rows.format).row_bytes(rows.cols));
    if (rows.scales == nullptr) return;
    const std::byte* first = scale_row(rows, 0);
    drop(first, scale_row(rows, rows.rows - 1) + info(rows.format).scale_row_bytes(rows.cols) - first);
  }

  static const OutputPart& part_with(const OutputMatrix& matrix, std::string_view suffix) {
    const auto found = std::find_if(matrix.parts.begin(), matrix.parts.end(), [&](const OutputPart& part) {
      return part.name.size() == matrix.source.name.size() + suffix.size() && part.name.ends_with(suffix);
    });
    CHECK(found != matrix.parts.end(), suffix);
    return *found;
  }

  // Rows of a part; what belongs to the whole matrix comes with its first piece.
  Status write_part(const Piece& piece, const PackedTensor& packed) const {
    const OutputMatrix& matrix = *piece.matrix;
    const OutputPart& part = part_with(matrix, packed.suffix);
    CHECK(part.dtype == packed.dtype && part.shape.rank() == packed.shape.rank());
    if (part.shape.rank() < 2) {
      if (piece.first != 0) return {};
      if (packed.suffix != ".weight_shape") return file_.write(part.offset, packed.bytes);
      const std::int64_t shape[2] = {matrix.source.rows, matrix.source.cols};
      return file_.write(part.offset, std::as_bytes(std::span(shape)));
    }
    CHECK(part.shape[1] == packed.shape[1]);
    const bool has_grid = part.shape[0] != matrix.source.rows;  // one row for several of the matrix
    const std::int64_t first = has_grid ? piece.first / info(matrix.format).block_rows : piece.first;
    CHECK(first + packed.shape[0] <= part.shape[0]);
    return file_.write(part.offset + first * part.shape[1] * size_bytes(part.dtype), packed.bytes);
  }

  // Nothing is known about activations without calibration.
  Status write_input_scale(const OutputMatrix& matrix) const {
    const float one = 1.0f;
    return file_.write(part_with(matrix, ".input_scale").offset, std::as_bytes(std::span(&one, 1)));
  }

  // Memory of the source that is not needed again.
  void drop(const std::byte* data, std::int64_t bytes) const {
    for (const SafetensorsFile& file : work_.checkpoint.files()) {
      const std::span<const std::byte> all = file.file().bytes();
      if (data >= all.data() && data < all.data() + all.size()) return file.file().drop(data - all.data(), bytes);
    }
  }

  const ShardWork& work_;
  const OutputFile& file_;
  std::vector<Piece> pieces_;
  std::map<std::size_t, float> largest_;     // group -> largest magnitude
  std::mutex mutex_;                         // of largest_ while measuring
  std::vector<std::vector<float>> scratch_;  // one a thread
  FirstError errors_;
  std::atomic<bool> stopped_ = false;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::int64_t source_bytes(const OutputUnit& unit) {
  std::int64_t bytes = unit.copied == nullptr ? 0 : unit.copied->tensor.bytes();
  for (const OutputMatrix& matrix : unit.matrices) bytes += weight_bytes(matrix.source);
  return bytes;
}

Result<bool> write_shard(const ShardWork& work, const OutputShard& shard, const OutputFile& file) {
  Window window(work, file);
  for (std::size_t unit = shard.first_unit; unit < shard.first_unit + shard.units; ++unit) {
    window.add(work.plan.units[unit]);
    if (window.bytes() < kWindowBytes && unit + 1 < shard.first_unit + shard.units) continue;
    const bool whole = TRY(window.write());
    if (!whole) return false;
  }
  return true;
}

}  // namespace reckoner
