#include "diagnose/admission/copies.h"

#include <algorithm>
#include <cstring>

#include "quant/format.h"

namespace reckoner::admission {
namespace {

constexpr std::int64_t kAlignment = 256;  // also the least border
constexpr std::uint8_t kMark = 0xff;
// A checkpoint puts weights where it likes; the uploader of a device does not.
constexpr std::int64_t kWeightMisalignment = 3;

std::int64_t aligned(std::int64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t scales_bytes(const Weight& w) {
  const FormatInfo& format = info(w.format);
  return (w.first_row + w.rows + format.block_rows - 1) / format.block_rows * format.scale_row_bytes(w.cols);
}

}  // namespace

Arena::Arena(std::int64_t size_bytes, DeviceMemory* memory, Stream stream) : buffer_(size_bytes, memory), memory_(memory), stream_(stream) {
  if (memory_ != nullptr) pinned_ = Buffer(size_bytes, memory_, BufferKind::pinned);
  reset();
}

void Arena::reset() {
  used_ = 0;
  taken_.clear();
}

void Arena::mark(std::int64_t first, std::int64_t end) {
  if (memory_ != nullptr) return memory_->fill(stream_, buffer_.data() + first, kMark, end - first);
  std::memset(buffer_.data() + first, kMark, static_cast<std::size_t>(end - first));
}

std::byte* Arena::take(std::int64_t size_bytes, std::int64_t misalignment) {
  const std::int64_t start = used_ == 0 ? kAlignment : used_;
  const std::int64_t begin = start + (on_host() ? misalignment : 0);
  const std::int64_t end = aligned(begin + size_bytes) + kAlignment;
  if (buffer_.data() == nullptr || end > buffer_.size_bytes()) return nullptr;
  mark(used_, end);
  used_ = end;
  taken_.emplace_back(begin, begin + size_bytes);
  return buffer_.data() + begin;
}

void Arena::copy_in(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  if (memory_ == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(size_bytes));
    return;
  }
  std::byte* const staged = pinned_.data() + find(to);
  if (pinned_.data() == nullptr) return;  // the device failed
  std::memcpy(staged, from, static_cast<std::size_t>(size_bytes));
  memory_->copy_in(stream_, to, staged, size_bytes);
}

std::vector<std::byte> Arena::bytes() {
  if (memory_ == nullptr) return {buffer_.data(), buffer_.data() + used_};
  // Where what came in was staged: that is done by the time that this is.
  memory_->copy_out(stream_, pinned_.data(), buffer_.data(), used_);
  memory_->synchronise(stream_);
  if (!memory_->status().ok()) return {};
  return {pinned_.data(), pinned_.data() + used_};
}

bool Arena::untouched(const std::vector<std::byte>& bytes) const {
  const auto is_marked = [](std::byte byte) { return byte == static_cast<std::byte>(kMark); };
  auto border = bytes.begin();
  for (const auto& [begin, end] : taken_) {
    if (!std::all_of(border, bytes.begin() + begin, is_marked)) return false;
    border = bytes.begin() + end;
  }
  return std::all_of(border, bytes.end(), is_marked);
}

std::byte* Copies::place(const std::byte* bytes, std::int64_t size_bytes, std::int64_t misalignment) {
  std::byte* const to = arena_.take(size_bytes, misalignment);
  if (to == nullptr) {
    complete_ = false;
  } else {
    arena_.copy_in(to, bytes, size_bytes);
  }
  return to;
}

std::byte* Copies::copy(const char* name, const std::byte* host, std::int64_t size_bytes, Way way, std::int64_t misalignment) {
  for (Piece& piece : pieces_) {
    if (piece.host != host || piece.size_bytes() != size_bytes) continue;
    if (way == Way::back) piece.way = way;
    return piece.copy;
  }
  std::byte* const to = place(host, size_bytes, misalignment);
  if (to != nullptr) pieces_.push_back({name, const_cast<std::byte*>(host), to, {host, host + size_bytes}, way});
  return to;
}

void Copies::copy(const char* name, Tensor& tensor, Way way) {
  if (!tensor.empty()) tensor.data = copy(name, tensor.data, tensor.bytes(), way);
}

void Copies::weight(const char* name, Weight& w) {
  w.data = copy(name, w.data, w.rows * info(w.format).row_bytes(w.cols), Way::in, kWeightMisalignment);
  if (w.scales != nullptr) w.scales = copy(name, w.scales, scales_bytes(w), Way::in, kWeightMisalignment);
}

// As the uploader places them: at one distance.
void Copies::weights(const char* name, std::span<const Weight>& weights) {
  std::vector<Weight>& experts = experts_.emplace_back(weights.begin(), weights.end());
  const Weight& first = experts.front();
  const std::int64_t data_bytes = first.rows * info(first.format).row_bytes(first.cols);
  const std::int64_t scale_bytes = first.scales == nullptr ? 0 : scales_bytes(first);
  const std::int64_t distance = aligned(data_bytes) + aligned(scale_bytes);
  std::vector<std::byte> all(static_cast<std::size_t>(std::ssize(experts) * distance));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    std::byte* const here = all.data() + static_cast<std::int64_t>(e) * distance;
    std::memcpy(here, experts[e].data, static_cast<std::size_t>(data_bytes));
    if (scale_bytes > 0) std::memcpy(here + aligned(data_bytes), experts[e].scales, static_cast<std::size_t>(scale_bytes));
  }
  std::byte* const to = place(all.data(), std::ssize(all), kWeightMisalignment);
  if (to == nullptr) return;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    experts[e].data = to + static_cast<std::int64_t>(e) * distance;
    if (scale_bytes > 0) experts[e].scales = experts[e].data + aligned(data_bytes);
  }
  weights = experts;
  pieces_.push_back({name, nullptr, to, std::move(all), Way::in});
}

void Copies::places(TokenPlaces& places) {
  const std::int64_t tokens = places.positions.dim(0);
  std::int64_t width = 1;
  for (std::int64_t t = 0; t < tokens; ++t) width = std::max(width, places.positions.i32()[t] / kPageTokens + 1);
  // A page that a token does not have is far outside of memory.
  std::vector<std::int32_t> table(static_cast<std::size_t>(tokens * width), 1 << 30);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t p = 0; p <= places.positions.i32()[t] / kPageTokens; ++p) {
      const std::int32_t page = places.pages[static_cast<std::size_t>(t)][p];
      table[static_cast<std::size_t>(t * width + p)] = page;
      pages_ = std::max<std::int64_t>(pages_, page + 1);
    }
  }
  copy("positions", places.positions, Way::in);
  if (arena_.on_host()) return;  // follows `pages`
  const auto* const bytes = reinterpret_cast<const std::byte*>(table.data());
  places.table = {.data = place(bytes, tokens * width * 4, 0), .dtype = DType::i32, .shape = {tokens, width}};
  places.pages = {};
}

void Copies::copy(const char* name, CacheView& cache, Way way) { cache.base = copy(name, cache.base, pages_ * cache.page_bytes, way); }

void Copies::bring_back(const std::vector<std::byte>& arena_bytes) {
  for (const Piece& piece : pieces_) {
    if (piece.way == Way::in) continue;
    std::memcpy(piece.host, arena_bytes.data() + arena_.find(piece.copy), static_cast<std::size_t>(piece.size_bytes()));
  }
}

}  // namespace reckoner::admission
