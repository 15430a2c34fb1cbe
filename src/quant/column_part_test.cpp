// Columns of a matrix in each format: which bytes they are, by hand, and that they mean the same numbers.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "quant/column_part.h"

namespace reckoner {
namespace {

std::vector<std::byte> counted(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

std::vector<std::byte> data_of(const Weight& part) {
  std::vector<std::byte> copied(static_cast<std::size_t>(part.rows * info(part.format).row_bytes(part.cols)));
  copy_data(part, 0, part.rows, copied.data());
  return copied;
}

std::vector<std::byte> scales_of(const Weight& part) {
  std::vector<std::byte> copied(static_cast<std::size_t>(scale_rows(part) * info(part.format).scale_row_bytes(part.cols)));
  copy_scales(part, 0, scale_rows(part), copied.data());
  return copied;
}

TEST(ColumnPart, Bf16HasTwoBytesAColumn) {
  const auto data = counted(2 * 5 * 2);  // [2, 5]
  const Weight whole{.format = QuantFormat::bf16, .rows = 2, .cols = 5, .data = data.data()};
  EXPECT_EQ(data_of(column_part(whole, 1, 2)), bytes({2, 3, 4, 5, 12, 13, 14, 15}));
  EXPECT_EQ(scale_rows(column_part(whole, 1, 2)), 0);
}

// Two codes a byte: a row of 48 is 24 bytes and 3 scales.
TEST(ColumnPart, Nvfp4HasAScaleForSixteenColumns) {
  const auto data = counted(2 * 24);
  const auto scales = counted(2 * 3);
  const Weight whole{.format = QuantFormat::nvfp4, .rows = 2, .cols = 48, .data = data.data(), .scales = scales.data(), .scale = 0.5f};
  const Weight part = column_part(whole, 32, 16);
  EXPECT_EQ(data_of(part), bytes({16, 17, 18, 19, 20, 21, 22, 23, 40, 41, 42, 43, 44, 45, 46, 47}));
  EXPECT_EQ(scales_of(part), bytes({2, 5}));
  EXPECT_EQ(part.scale, 0.5f);
  EXPECT_EQ(scales_of(column_part(whole, 0, 32)), bytes({0, 1, 3, 4}));
}

// A row of 96 is 48 bytes and 3 scales of two bytes.
TEST(ColumnPart, Int4HasATwoByteScaleForThirtyTwoColumns) {
  const auto data = counted(2 * 48);
  const auto scales = counted(2 * 6);
  const Weight whole{.format = QuantFormat::int4_g32, .rows = 2, .cols = 96, .data = data.data(), .scales = scales.data()};
  const Weight part = column_part(whole, 32, 64);
  EXPECT_EQ(data_of(part).front(), std::byte{16});
  EXPECT_EQ(data_of(part)[32], std::byte{64});
  EXPECT_EQ(data_of(part).size(), 64u);
  EXPECT_EQ(scales_of(part), bytes({2, 3, 4, 5, 8, 9, 10, 11}));
}

TEST(ColumnPart, MxHasAOneByteScaleForThirtyTwoColumns) {
  const auto data = counted(2 * 64);
  const auto scales = counted(4);
  const Weight four{.format = QuantFormat::mxfp4, .rows = 2, .cols = 64, .data = data.data(), .scales = scales.data()};
  EXPECT_EQ(data_of(column_part(four, 32, 32))[16], std::byte{48});
  EXPECT_EQ(scales_of(column_part(four, 32, 32)), bytes({1, 3}));
  const Weight eight{.format = QuantFormat::mxfp8, .rows = 2, .cols = 64, .data = data.data(), .scales = scales.data()};
  EXPECT_EQ(data_of(column_part(eight, 32, 32))[32], std::byte{96});
  EXPECT_EQ(scales_of(column_part(eight, 0, 32)), bytes({0, 2}));
}

// [3, 300] in blocks of 128 by 128: a grid of 1 by 3 floats, the last block 44 wide.
TEST(ColumnPart, Fp8BlockHasAFloatForABlock) {
  const auto data = counted(3 * 300);
  const auto scales = counted(3 * 4);
  const Weight whole{.format = QuantFormat::fp8_block, .rows = 3, .cols = 300, .data = data.data(), .scales = scales.data()};
  const Weight part = column_part(whole, 128, 172);
  EXPECT_EQ(scale_rows(part), 1);
  EXPECT_EQ(scales_of(part), bytes({4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(data_of(part)[0], std::byte{128});
  EXPECT_EQ(data_of(part)[172], static_cast<std::byte>(428));
}

// Rows 120 to 139 of a matrix lie in two rows of blocks, of which the second begins with the ninth.
TEST(ColumnPart, RowsOfAPartKeepTheirPlaceInTheirBlocks) {
  const auto data = counted(256 * 256);
  const auto scales = counted(2 * 2 * 4);
  const Weight whole{.format = QuantFormat::fp8_block, .rows = 256, .cols = 256, .data = data.data(), .scales = scales.data()};
  const Weight rows = row_range(whole, 120, 20);
  const Weight part = column_part(rows, 128, 128);
  EXPECT_EQ(scale_rows(part), 2);
  EXPECT_EQ(scales_of(part), bytes({4, 5, 6, 7, 12, 13, 14, 15}));
  const auto packed_data = data_of(part);
  const auto packed_scales = scales_of(part);
  const Weight packed = packed_part(part, packed_data.data(), packed_scales.data());
  EXPECT_EQ(packed.first_row, 120);
  EXPECT_EQ(scale_row(packed, 7), packed_scales.data());
  EXPECT_EQ(scale_row(packed, 8), packed_scales.data() + 4);
}

// A scale of a whole row goes with every part of it.
TEST(ColumnPart, Fp8ChannelKeepsTheScalesOfItsRows) {
  const auto data = counted(2 * 6);
  const auto scales = counted(2 * 4);
  const Weight whole{.format = QuantFormat::fp8_channel, .rows = 2, .cols = 6, .data = data.data(), .scales = scales.data()};
  EXPECT_EQ(data_of(column_part(whole, 3, 2)), bytes({3, 4, 9, 10}));
  EXPECT_EQ(scales_of(column_part(whole, 3, 2)), scales);
}

// In every format: numbers of a part are those of the whole.
TEST(ColumnPart, MeansTheSameNumbers) {
  constexpr std::int64_t kRows = 5, kCols = 512;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = normal(random);
  for (const FormatInfo& format : formats()) {
    const PackedMatrix matrix(format.format, "m", values, kRows, kCols);
    const Weight& whole = matrix.weight();
    for (const std::int64_t parts : {2, 4}) {
      for (std::int64_t at = 0; at < parts; ++at) {
        const std::int64_t width = kCols / parts;
        const Weight part = column_part(whole, at * width, width);
        EXPECT_EQ(part.data, nullptr) << "not to be used before it is copied";
        const auto data = data_of(part);
        const auto scales = scales_of(part);
        const Weight packed = packed_part(part, data.data(), scales.data());
        EXPECT_EQ(weight_bytes(packed), static_cast<std::int64_t>(data.size() + scales.size()));
        std::vector<float> expected(width), found(width);
        for (std::int64_t row = 0; row < kRows; ++row) {
          format.dequantise(whole, row, at * width, width, expected.data());
          format.dequantise(packed, row, 0, width, found.data());
          EXPECT_EQ(found, expected) << format.name << " row " << row << " part " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reckoner
