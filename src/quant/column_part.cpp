#include "quant/column_part.h"

#include <cstring>

#include "base/check.h"

namespace reckoner {
namespace {

void copy_strided(const std::byte* from, std::int64_t stride, std::int64_t width, std::int64_t rows, std::byte* to) {
  for (std::int64_t row = 0; row < rows; ++row) std::memcpy(to + row * width, from + row * stride, static_cast<std::size_t>(width));
}

}  // namespace

Weight column_part(const Weight& whole, std::int64_t first, std::int64_t count) {
  const std::int64_t block = info(whole.format).block_cols;
  CHECK(first >= 0 && count > 0 && first + count <= whole.cols && whole.part_of == nullptr);
  CHECK(first % block == 0 && (count % block == 0 || first + count == whole.cols), "columns that share a scale are not to be parted");
  Weight part = whole;
  part.cols = count;
  part.data = nullptr;
  part.scales = nullptr;
  part.part_of = &whole;
  part.first_col = first;
  return part;
}

std::int64_t first_row_in_block(const Weight& part) { return part.first_row % info(part.format).block_rows; }

std::int64_t scale_rows(const Weight& part) {
  if (part.part_of->scales == nullptr) return 0;
  const std::int64_t block = info(part.format).block_rows;
  return (first_row_in_block(part) + part.rows + block - 1) / block;
}

void copy_data(const Weight& part, std::int64_t first, std::int64_t rows, std::byte* to) {
  const FormatInfo& format = info(part.format);
  const std::int64_t stride = format.row_bytes(part.part_of->cols);
  copy_strided(part.part_of->data + first * stride + format.row_bytes(part.first_col), stride, format.row_bytes(part.cols), rows, to);
}

void copy_scales(const Weight& part, std::int64_t first, std::int64_t rows, std::byte* to) {
  const FormatInfo& format = info(part.format);
  const std::int64_t stride = format.scale_row_bytes(part.part_of->cols);
  // Scales of whole rows belong to any part of them.
  const std::int64_t skipped = format.block_cols > 1 ? format.scale_row_bytes(part.first_col) : 0;
  copy_strided(scale_row(*part.part_of, 0) + first * stride + skipped, stride, format.scale_row_bytes(part.cols), rows, to);
}

Weight packed_part(const Weight& part, const std::byte* data, const std::byte* scales) {
  Weight packed = part;
  packed.data = data;
  packed.scales = part.part_of->scales == nullptr ? nullptr : scales;
  packed.first_row = first_row_in_block(part);
  packed.part_of = nullptr;
  packed.first_col = 0;
  return packed;
}

}  // namespace reckoner
