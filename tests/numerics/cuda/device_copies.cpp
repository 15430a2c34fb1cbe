#include "device_copies.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "quant/format.h"

namespace reckoner {
namespace {

constexpr std::int64_t kAlignment = 256;  // also the least border
constexpr int kMark = 0xff;

void expect_success(cudaError_t error) { CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

std::int64_t aligned(std::int64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t scales_bytes(const Weight& w) {
  const FormatInfo& format = info(w.format);
  return (w.first_row + w.rows + format.block_rows - 1) / format.block_rows * format.scale_row_bytes(w.cols);
}

}  // namespace

DeviceArena::DeviceArena(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  void* memory = nullptr;
  expect_success(cudaMalloc(&memory, static_cast<std::size_t>(size_bytes)));
  base_ = static_cast<std::byte*>(memory);
  used_ = size_bytes;
  reset();
}

DeviceArena::~DeviceArena() { static_cast<void>(cudaFree(base_)); }

void DeviceArena::reset() {
  expect_success(cudaMemset(base_, kMark, static_cast<std::size_t>(used_)));
  used_ = kAlignment;
  taken_.clear();
}

std::byte* DeviceArena::take(std::int64_t size_bytes) {
  const std::int64_t begin = used_;
  used_ = aligned(begin + size_bytes) + kAlignment;
  CHECK(used_ <= size_bytes_, "the arena is too small");
  taken_.emplace_back(begin, begin + size_bytes);
  return base_ + begin;
}

bool DeviceArena::untouched() const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(used_));
  expect_success(cudaMemcpy(bytes.data(), base_, bytes.size(), cudaMemcpyDeviceToHost));
  const auto is_marked = [](std::byte byte) { return byte == static_cast<std::byte>(kMark); };
  auto border = bytes.begin();
  for (const auto& [begin, end] : taken_) {
    if (!std::all_of(border, bytes.begin() + begin, is_marked)) return false;
    border = bytes.begin() + end;
  }
  return std::all_of(border, bytes.end(), is_marked);
}

std::byte* DeviceCopies::copy(const std::byte* host, std::int64_t size_bytes, Way way) {
  for (Piece& piece : pieces_) {
    if (piece.host != host || piece.size_bytes != size_bytes) continue;
    if (way == Way::back) piece.way = way;
    return piece.device;
  }
  std::byte* device = arena_.take(size_bytes);
  expect_success(cudaMemcpy(device, host, static_cast<std::size_t>(size_bytes), cudaMemcpyHostToDevice));
  pieces_.push_back({const_cast<std::byte*>(host), device, size_bytes, way});
  return device;
}

void DeviceCopies::copy(Tensor& tensor, Way way) {
  if (!tensor.empty()) tensor.data = copy(tensor.data, tensor.bytes(), way);
}

void DeviceCopies::weight(const char*, Weight& w) {
  w.data = copy(w.data, w.rows * info(w.format).row_bytes(w.cols), Way::in);
  if (w.scales != nullptr) w.scales = copy(w.scales, scales_bytes(w), Way::in);
}

// As the uploader places them: at one distance.
void DeviceCopies::weights(const char*, std::span<const Weight>& weights) {
  experts_.assign(weights.begin(), weights.end());
  const Weight& first = experts_.front();
  const std::int64_t data_size = first.rows * info(first.format).row_bytes(first.cols);
  const std::int64_t scales_size = first.scales == nullptr ? 0 : scales_bytes(first);
  const auto count = std::ssize(experts_);
  std::vector<std::byte> data(static_cast<std::size_t>(count * aligned(data_size))),
      scales(static_cast<std::size_t>(count * aligned(scales_size)));
  std::byte* device_data = arena_.take(std::ssize(data));
  std::byte* device_scales = arena_.take(std::ssize(scales));
  for (std::int64_t e = 0; e < count; ++e) {
    Weight& expert = experts_[static_cast<std::size_t>(e)];
    std::memcpy(data.data() + e * aligned(data_size), expert.data, static_cast<std::size_t>(data_size));
    if (scales_size > 0) std::memcpy(scales.data() + e * aligned(scales_size), expert.scales, static_cast<std::size_t>(scales_size));
    expert.data = device_data + e * aligned(data_size);
    if (scales_size > 0) expert.scales = device_scales + e * aligned(scales_size);
  }
  expect_success(cudaMemcpy(device_data, data.data(), data.size(), cudaMemcpyHostToDevice));
  if (scales_size > 0) expect_success(cudaMemcpy(device_scales, scales.data(), scales.size(), cudaMemcpyHostToDevice));
  weights = experts_;
}

void DeviceCopies::places(TokenPlaces& places) {
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
  const std::int64_t size_bytes = tokens * width * 4;
  places.table = {.data = arena_.take(size_bytes), .dtype = DType::i32, .shape = {tokens, width}};
  expect_success(cudaMemcpy(places.table.data, table.data(), static_cast<std::size_t>(size_bytes), cudaMemcpyHostToDevice));
  copy(places.positions, Way::in);
  places.pages = {};
}

void DeviceCopies::copy(CacheView& cache, Way way) { cache.base = copy(cache.base, pages_ * cache.page_bytes, way); }

void DeviceCopies::bring_back() {
  for (const Piece& piece : pieces_) {
    if (piece.way == Way::in) continue;
    expect_success(cudaMemcpy(piece.host, piece.device, static_cast<std::size_t>(piece.size_bytes), cudaMemcpyDeviceToHost));
  }
}

}  // namespace reckoner
