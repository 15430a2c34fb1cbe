// The bytes of cache rows, against bytes worked out by hand.
#include "ops/pages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace reckoner {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

CacheView f8_view(std::int64_t quantised, std::int64_t others) {
  return {.row_elements = quantised + others, .dtype = DType::f8_e4m3, .quantised_elements = quantised};
}

std::vector<std::byte> written(const CacheView& view, const std::vector<float>& values) {
  EXPECT_EQ(std::ssize(values), view.row_elements);
  std::vector<std::byte> row(static_cast<std::size_t>(view.row_bytes()), std::byte{0xee});
  write_row(view, row.data(), values.data());
  return row;
}

std::vector<float> read_back(const CacheView& view, const std::vector<std::byte>& row) {
  std::vector<float> values(static_cast<std::size_t>(view.row_elements));
  read_row(view, row.data(), 0, view.row_elements, values.data());
  return values;
}

std::vector<int> bytes_at(const std::vector<std::byte>& row, std::int64_t first, std::int64_t count) {
  std::vector<int> bytes;
  for (std::int64_t i = first; i < first + count; ++i) bytes.push_back(std::to_integer<int>(row[static_cast<std::size_t>(i)]));
  return bytes;
}

float float_at(const std::vector<std::byte>& row, std::int64_t offset) {
  float value = 0;
  std::memcpy(&value, row.data() + offset, sizeof(value));
  return value;
}

TEST(CacheView, RowsHaveThePublishedSizes) {
  const CacheView latent = f8_view(512, 64);
  EXPECT_EQ(latent.scales_offset_bytes(), 512);
  EXPECT_EQ(latent.plain_offset_bytes(), 528);
  EXPECT_EQ(latent.row_bytes(), 656);
  EXPECT_EQ(f8_view(128, 0).row_bytes(), 132);
  // 131 codes, a byte of padding, two scales, one BF16, two bytes of padding.
  EXPECT_EQ(f8_view(131, 1).row_bytes(), 144);
  EXPECT_EQ((CacheView{.row_elements = 576, .dtype = DType::bf16}.row_bytes()), 1152);
  EXPECT_EQ((CacheView{.row_elements = 576, .dtype = DType::f32, .quantised_elements = 512}.row_bytes()), 2304);
}

TEST(CacheRow, TheBytesOfAQuantisedRow) {
  // Two blocks and two BF16. The largest of the first block is 448, so that its scale is 1: codes can be read off the format.
  std::vector<float> values(133, 0.0f);
  const std::vector<float> first = {448.0f,   -224.0f,      1.0f,     1.0625f,       1.1875f, 0x1p-6f, 0x1p-9f,
                                    0x1p-10f, 3 * 0x1p-10f, -0x1p-7f, 15 * 0x1p-10f, -0.0f,   431.0f,  433.0f};
  const std::vector<int> first_codes = {0x7e, 0xf6, 0x38,   // sign, 4 bits of exponent + 7, 3 bits of mantissa
                                        0x38, 0x3a,         // halfway between 1 and 1.125, between 1.125 and 1.25: to even
                                        0x08, 0x01,         // smallest normal number, smallest number
                                        0x00, 0x02,         // halfway between 0 and 1, between 1 and 2 times 2^-9: to even
                                        0x84, 0x08,         // a denormal; halfway to the smallest normal number: to even
                                        0x80, 0x7d, 0x7e};  // neighbours of halfway between 416 and 448
  std::copy(first.begin(), first.end(), values.begin());
  values[128] = -224.0f;  // scale 0.5
  values[129] = 1.0f;
  values[130] = 0.5f;
  values[131] = 1.5f;
  values[132] = -1.00390625f;  // halfway between two BF16: to even
  const CacheView view = f8_view(131, 2);
  const std::vector<std::byte> row = written(view, values);
  EXPECT_EQ(bytes_at(row, 0, std::ssize(first)), first_codes);
  EXPECT_EQ(bytes_at(row, std::ssize(first), 128 - std::ssize(first)),
            std::vector<int>(static_cast<std::size_t>(128 - std::ssize(first)), 0));
  EXPECT_EQ(bytes_at(row, 128, 3), (std::vector<int>{0xfe, 0x40, 0x38}));
  EXPECT_EQ(float_at(row, 132), 1.0f);
  EXPECT_EQ(float_at(row, 136), 0.5f);
  EXPECT_EQ(bytes_at(row, 140, 4), (std::vector<int>{0xc0, 0x3f, 0x80, 0xbf}));
  ASSERT_EQ(std::ssize(row), 144);

  const std::vector<float> back = read_back(view, row);
  EXPECT_EQ(back[0], 448.0f);
  EXPECT_EQ(back[4], 1.25f);
  EXPECT_EQ(back[10], 0x1p-6f);
  EXPECT_EQ(back[128], -224.0f);
  EXPECT_EQ(back[130], 0.5f);
  EXPECT_EQ(back[131], 1.5f);
  EXPECT_EQ(back[132], -1.0f);
  // A part of the row, across blocks and storages.
  std::vector<float> part(4);
  read_row(view, row.data(), 129, 4, part.data());
  EXPECT_EQ(part, (std::vector<float>{1.0f, 0.5f, 1.5f, -1.0f}));
}

TEST(CacheRow, ABlockOfZerosHasTheScaleOne) {
  const CacheView view = f8_view(256, 0);
  std::vector<float> values(256, 0.0f);
  values[200] = 1e-45f;  // divided by 448 it is zero
  const std::vector<std::byte> row = written(view, values);
  EXPECT_EQ(float_at(row, 256), 1.0f);
  EXPECT_EQ(float_at(row, 260), 1.0f);
  EXPECT_EQ(read_back(view, row), std::vector<float>(256, 0.0f));
}

TEST(CacheRow, WhatIsNotFiniteStaysSoAndSparesItsNeighbours) {
  const CacheView view = f8_view(6, 3);
  const std::vector<std::byte> row = written(view, {2.0f, kInfinity, -kInfinity, kNan, -kNan, -1.0f, kInfinity, kNan, 1.0f});
  const std::vector<float> back = read_back(view, row);
  for (const std::size_t bad : {1, 2, 3, 4, 6, 7}) EXPECT_FALSE(std::isfinite(back[bad])) << bad;
  EXPECT_EQ(bytes_at(row, 1, 4), (std::vector<int>{0x7f, 0x7f, 0x7f, 0x7f}));
  EXPECT_EQ(float_at(row, 8), 2.0f / 448.0f);
  EXPECT_NEAR(back[0], 2.0f, 2.0f * 0x1p-23f);
  EXPECT_NEAR(back[5], -1.0f, 0x1p-23f);
  EXPECT_EQ(back[8], 1.0f);
  // The largest float does not overflow on the way.
  const float largest = std::numeric_limits<float>::max();
  EXPECT_NEAR(read_back(f8_view(2, 0), written(f8_view(2, 0), {largest, 0.0f}))[0] / largest, 1.0, 0x1p-23);
}

// 3 bits of mantissa, rounded to nearest: off by 2^-4 of the value, or by half a step of the smallest codes.
TEST(CacheRow, AQuantisedElementIsOffByASixteenthAtMost) {
  const CacheView view = f8_view(128, 0);
  std::vector<float> values;
  for (int i = 0; i < 128; ++i) values.push_back(std::ldexp(1.0f + static_cast<float>(i) / 128.0f, -i / 6) * (i % 2 == 0 ? 1.0f : -1.0f));
  const std::vector<float> back = read_back(view, written(view, values));
  const float scale = 1.0f / 448.0f * 1.1f;  // the largest element lies below 1.1
  for (std::size_t i = 0; i < 128; ++i) {
    const float step = std::max(std::fabs(values[i]) * 0x1.0001p-4f, scale * 0x1p-10f);
    EXPECT_NEAR(back[i], values[i], step) << "element " << i;
  }
}

TEST(ExpectCache, RefusesWhatIsNoCache) {
  CacheView view = f8_view(32, 16);
  EXPECT_TRUE(expect_cache("op", view, 48, "wrong width").ok());
  EXPECT_EQ(expect_cache("op", view, 40, "wrong width").error().what, "op: wrong width");
  view.quantised_elements = 49;
  EXPECT_FALSE(expect_cache("op", view, 48, "wrong width").ok());
  view.quantised_elements = -1;
  EXPECT_FALSE(expect_cache("op", view, 48, "wrong width").ok());
  view.dtype = DType::f16;
  EXPECT_FALSE(expect_cache("op", view, 48, "wrong width").ok());
  view.dtype = DType::bf16;  // quantises nothing
  EXPECT_TRUE(expect_cache("op", view, 48, "wrong width").ok());
}

}  // namespace
}  // namespace reckoner
