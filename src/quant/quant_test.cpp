#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "quant/e2m1.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/mx.h"
#include "quant/nvfp4.h"
#include "quant/plain.h"
#include "tensor/dtype.h"

namespace reckoner {
namespace {

// Tensors in memory, by name.
class MapSource : public TensorSource {
 public:
  std::map<std::string, Tensor, std::less<>> tensors;
  const Tensor* find(std::string_view name) const override {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }
  std::string locate(std::string_view name) const override { return "test.safetensors: tensor '" + std::string(name) + "'"; }

  // A tensor of the module "m" whose bytes the test keeps.
  template <class Bytes>
  void put(const std::string& suffix, DType dtype, const Shape& shape, Bytes& bytes) {
    tensors["m" + suffix] = {.data = reinterpret_cast<std::byte*>(std::data(bytes)), .dtype = dtype, .shape = shape};
  }
  Result<Weight> resolve(std::int64_t rows, std::int64_t cols) {
    static const std::string module = "m";
    return resolve_weight({*this, module, rows, cols, owners});
  }
  std::vector<Buffer> owners;
};

std::vector<float> row_of(const Weight& w, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(w.cols));
  info(w.format).dequantise(w, row, 0, w.cols, out.data());
  return out;
}

std::vector<float> all_of(const Weight& w) {
  std::vector<float> out;
  for (std::int64_t row = 0; row < w.rows; ++row) {
    for (const float value : row_of(w, row)) out.push_back(value);
  }
  return out;
}

std::vector<float> normal_values(std::size_t count) {
  std::mt19937 random(7);
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>(0, 1)(random);
  return values;
}

std::string error_of(const Result<Weight>& weight) { return weight.ok() ? "" : weight.error().what; }

// Worked by hand from the published layout: byte 0x91 holds code 1 (0.5) then code 9 (-0.5); scale byte 0x40 is 2.0, 0x30 is 0.5.
unsigned char nvfp4_codes[16] = {0x91, 0x32, 0x54, 0x76, 0x10, 0xa8, 0xcb, 0xfd, 0x07, 0, 0, 0, 0, 0, 0, 0x70};
unsigned char nvfp4_scales[2] = {0x40, 0x30};
const std::vector<float> kNvfp4Expected = {0.25f, -0.25f, 0.5f,  0.75f, 1.0f,  1.5f,  2.0f, 3.0f, 0.0f, 0.25f, -0.0f,
                                           -0.5f, -0.75f, -1.0f, -1.5f, -3.0f, 0.75f, 0,    0,    0,    0,     0,
                                           0,     0,      0,     0,     0,     0,     0,    0,    0,    0.75f};

TEST(Nvfp4, HandComputedBytesOfModelOpt) {
  float scale[1] = {0.25f};
  MapSource source;
  source.put(".weight", DType::u8, {1, 16}, nvfp4_codes);
  source.put(".weight_scale", DType::f8_e4m3, {1, 2}, nvfp4_scales);
  source.put(".weight_scale_2", DType::f32, {}, scale);
  EXPECT_EQ(all_of(source.resolve(1, 32).value()), kNvfp4Expected);
}

// The same weights as compressed-tensors writes them: its global scale divides.
TEST(Nvfp4, HandComputedBytesOfCompressedTensors) {
  float scale[1] = {4.0f};
  MapSource source;
  source.put(".weight_packed", DType::u8, {1, 16}, nvfp4_codes);
  source.put(".weight_scale", DType::f8_e4m3, {1, 2}, nvfp4_scales);
  source.put(".weight_global_scale", DType::f32, {1}, scale);
  EXPECT_EQ(all_of(source.resolve(1, 32).value()), kNvfp4Expected);
  source.tensors.erase("m.weight_global_scale");
  EXPECT_EQ(error_of(source.resolve(1, 32)), "test.safetensors: tensor 'm.weight_global_scale': missing; a weight in NVFP4 needs it");
}

// Largest 6 * 448 gives a tensor scale of 1; the first block's largest is 6 * 448 (scale 448 = 0x7e), the second's 6 (scale 1 = 0x38).
TEST(Nvfp4, PacksHandComputedBytes) {
  std::vector<float> values(32);
  values[0] = 2688;
  values[1] = -1344;  // -3 * 448
  values[16] = 6;
  values[17] = 2.5f;   // a tie between 2 and 3: the even code, 4
  values[18] = 0.75f;  // a tie between 0.5 and 1: the even code, 2
  const std::vector<PackedTensor> parts = kNvfp4Format.pack(values, 1, 32, {});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].bytes[0], std::byte{0xd7});
  EXPECT_EQ(parts[0].bytes[8], std::byte{0x47});
  EXPECT_EQ(parts[0].bytes[9], std::byte{0x02});
  EXPECT_EQ(parts[1].bytes, (std::vector<std::byte>{std::byte{0x7e}, std::byte{0x38}}));
  float scale = 0;
  std::memcpy(&scale, parts[2].bytes.data(), 4);
  EXPECT_EQ(scale, 1.0f);
}

TEST(Nvfp4, MatricesCanShareATensorScale) {
  const std::vector<float> values(16, 1.0f);
  const PackedMatrix own(QuantFormat::nvfp4, "m", values, 1, 16);
  const PackedMatrix shared(QuantFormat::nvfp4, "m", values, 1, 16, {.largest = 4});
  EXPECT_EQ(shared.weight().scale, 4 * own.weight().scale);
}

TEST(Nvfp4, BadScalesAreNamed) {
  const std::vector<float> values(2 * 32, 1.0f);
  PackedMatrix packed(QuantFormat::nvfp4, "m", values, 2, 32);
  EXPECT_FALSE(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2).has_value());
  std::vector<std::byte>& scales = packed.tensors()[1].bytes;
  scales[3] = std::byte{0x7f};
  EXPECT_EQ(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2)->what, "NaN");
  EXPECT_EQ(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2)->row, 1);
  EXPECT_EQ(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2)->block, 1);
  scales[3] = std::byte{0};
  EXPECT_EQ(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2)->what, "0");
  scales[3] = std::byte{0xb8};
  EXPECT_EQ(kNvfp4Format.find_bad_scale(packed.weight(), 0, 2)->what, "-1");
}

// Against a search through the values, at every midpoint and its neighbours too.
TEST(E2M1, NearestWithTiesToTheEvenCode) {
  std::vector<float> values = normal_values(2000);
  for (unsigned code = 0; code < 7; ++code) {
    const float middle = (kE2M1[code] + kE2M1[code + 1]) / 2;
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 9.0f), kE2M1[code]}) values.push_back(value);
  }
  values.insert(values.end(), {6.0f, 7.0f, 1e10f, 0.0f, 1e-30f});
  for (const float value : values) {
    unsigned expected = 0;
    for (unsigned code = 1; code < 8; ++code) {
      const double now = std::fabs(static_cast<double>(std::fabs(value)) - kE2M1[code]);
      const double best = std::fabs(static_cast<double>(std::fabs(value)) - kE2M1[expected]);
      if (now < best || (now == best && code % 2 == 0)) expected = code;
    }
    EXPECT_EQ(nearest_e2m1(std::fabs(value)), expected) << value;
    EXPECT_EQ(nearest_e2m1(-std::fabs(value)), expected + 8) << value;
  }
}

// Codes as for NVFP4, one block of 32; scale 128 is 2^1, 126 is 2^-1, 255 is NaN.
TEST(Mxfp4, HandComputedBytes) {
  unsigned char codes[32] = {0x91, 0x32, 0x54, 0x76};
  codes[16] = 0xf1;
  unsigned char scales[2] = {128, 126};
  for (const std::string suffix : {".weight", ".weight_packed"}) {
    for (const DType scale_dtype : {DType::u8, DType::f8_e8m0}) {
      MapSource source;
      source.put(suffix, DType::u8, {1, 32}, codes);
      source.put(".weight_scale", scale_dtype, {1, 2}, scales);
      const Weight w = source.resolve(1, 64).value();
      EXPECT_EQ(w.format, QuantFormat::mxfp4);
      const std::vector<float> row = row_of(w, 0);
      EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 9), (std::vector<float>{1, -1, 2, 3, 4, 6, 8, 12, 0}));
      EXPECT_EQ(row[32], 0.25f);
      EXPECT_EQ(row[33], -3.0f);
    }
  }
  scales[1] = 255;
  MapSource source;
  source.put(".weight", DType::u8, {1, 32}, codes);
  source.put(".weight_scale", DType::u8, {1, 2}, scales);
  EXPECT_EQ(kMxfp4Format.find_bad_scale(source.resolve(1, 64).value(), 0, 1)->block, 1);
}

// Largest 7 / 6 is above 1: the scale must be 2 (128), and 7 / 2 = 3.5 ties to the even code 4 / 2 -> 0x6; largest 6 keeps scale 1 (127).
TEST(Mxfp4, PacksHandComputedBytes) {
  std::vector<float> values(64);
  values[0] = 7;
  values[1] = -1;
  values[32] = 6;
  const std::vector<PackedTensor> parts = kMxfp4Format.pack(values, 1, 64, {});
  EXPECT_EQ(parts[0].bytes[0], std::byte{0x96});
  EXPECT_EQ(parts[0].bytes[16], std::byte{0x07});
  EXPECT_EQ(parts[1].bytes, (std::vector<std::byte>{std::byte{128}, std::byte{127}}));
}

// 0x38 is 1, 0xc0 is -2, 0x7e is 448; scale 124 is 2^-3.
TEST(Mxfp8, HandComputedBytes) {
  unsigned char codes[32] = {0x38, 0xc0, 0x7e};
  unsigned char scales[1] = {124};
  MapSource source;
  source.put(".weight", DType::f8_e4m3, {1, 32}, codes);
  source.put(".weight_scale", DType::u8, {1, 1}, scales);
  const Weight w = source.resolve(1, 32).value();
  EXPECT_EQ(w.format, QuantFormat::mxfp8);
  const std::vector<float> row = row_of(w, 0);
  EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 4), (std::vector<float>{0.125f, -0.25f, 56, 0}));
}

// Word 0x98765430: elements 0, 3, 4, 5, 6, 7, 8, 9, each less 8; BF16 0x3f00 is 0.5.
TEST(Int4, HandComputedBytes) {
  std::uint32_t words[4] = {0x98765430, 0x88888888, 0x88888888, 0xf8888888};
  std::uint16_t scales[1] = {0x3f00};
  std::int64_t shape[2] = {1, 32};
  MapSource source;
  source.put(".weight_packed", DType::i32, {1, 4}, words);
  source.put(".weight_scale", DType::bf16, {1, 1}, scales);
  source.put(".weight_shape", DType::i64, {2}, shape);
  const std::vector<float> row = row_of(source.resolve(1, 32).value(), 0);
  EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 9), (std::vector<float>{-4, -2.5f, -2, -1.5f, -1, -0.5f, 0, 0.5f, 0}));
  EXPECT_EQ(row[31], 3.5f);
  shape[1] = 64;
  EXPECT_EQ(error_of(source.resolve(1, 32)), "test.safetensors: tensor 'm.weight_shape': expected 1 by 32, found 1 by 64");
}

// Largest 14 gives scale 2 (BF16 0x4000): 14 is code 15, -14 is code 1, 3 is 1.5 steps, which ties to 2: code 10.
TEST(Int4, PacksHandComputedBytes) {
  std::vector<float> values(32);
  values[0] = 14;
  values[1] = -14;
  values[2] = 3;
  const std::vector<PackedTensor> parts = kInt4Format.pack(values, 1, 32, {});
  EXPECT_EQ(parts[0].bytes[0], std::byte{0x1f});
  EXPECT_EQ(parts[0].bytes[1], std::byte{0x8a});
  EXPECT_EQ(parts[1].bytes, (std::vector<std::byte>{std::byte{0x00}, std::byte{0x40}}));
  EXPECT_EQ(parts[2].bytes[0], std::byte{1});
  EXPECT_EQ(parts[2].bytes[8], std::byte{32});
}

// 129 x 130: two rows and two columns of blocks, the last ones 1 row and 2 columns.
TEST(Fp8Block, RaggedBlocksAndRowsThatStraddle) {
  std::vector<unsigned char> codes(129 * 130, 0x38);  // all 1
  float scales[4] = {2, 3, 5, 7};
  MapSource source;
  source.put(".weight", DType::f8_e4m3, {129, 130}, codes);
  source.put(".weight_scale_inv", DType::f32, {2, 2}, scales);
  const Weight w = source.resolve(129, 130).value();
  EXPECT_EQ(w.format, QuantFormat::fp8_block);
  EXPECT_EQ(row_of(w, 127)[127], 2);
  EXPECT_EQ(row_of(w, 127)[128], 3);
  EXPECT_EQ(row_of(w, 128)[127], 5);
  EXPECT_EQ(row_of(w, 128)[129], 7);
  // A head's rows keep the blocks of the whole matrix.
  const Weight head = row_range(row_range(w, 100, 29), 20, 9);
  EXPECT_EQ(row_of(head, 7)[0], 2);
  EXPECT_EQ(row_of(head, 8)[0], 5);
  scales[3] = 0;
  EXPECT_EQ(kFp8BlockFormat.find_bad_scale(w, 128, 1)->what, "0");
  EXPECT_FALSE(kFp8BlockFormat.find_bad_scale(w, 0, 128).has_value());
}

TEST(Fp8Block, ScalesInOtherDTypesAndUnderTheOtherName) {
  std::vector<unsigned char> codes(2 * 256, 0x38);
  std::uint16_t bf16[2] = {0x3f00, 0x4000};
  unsigned char e8m0[2] = {126, 128};
  for (const std::string suffix : {".weight_scale_inv", ".weight_scale"}) {
    MapSource source;
    source.put(".weight", DType::f8_e4m3, {2, 256}, codes);
    source.put(suffix, DType::bf16, {1, 2}, bf16);
    EXPECT_EQ(row_of(source.resolve(2, 256).value(), 1)[200], 2.0f) << suffix;
  }
  MapSource source;
  source.put(".weight", DType::f8_e4m3, {2, 256}, codes);
  source.put(".weight_scale_inv", DType::f8_e8m0, {1, 2}, e8m0);
  EXPECT_EQ(row_of(source.resolve(2, 256).value(), 1)[0], 0.5f);
}

// 0x7e is 448: a block whose largest is 896 has scale 2, and -1 / 2 is -0.5 = 0xb0; 0x30 is 0.5.
TEST(Fp8Block, PacksHandComputedBytes) {
  std::vector<float> values(129);
  values[0] = 896;
  values[1] = -1;
  values[128] = 448;
  const std::vector<PackedTensor> parts = kFp8BlockFormat.pack(values, 1, 129, {});
  EXPECT_EQ(parts[0].bytes[0], std::byte{0x7e});
  EXPECT_EQ(parts[0].bytes[1], std::byte{0xb0});
  EXPECT_EQ(parts[0].bytes[128], std::byte{0x7e});
  float scales[2] = {};
  std::memcpy(scales, parts[1].bytes.data(), 8);
  EXPECT_EQ(scales[0], 2.0f);
  EXPECT_EQ(scales[1], 1.0f);
}

TEST(Fp8Channel, OneScaleARowOrOneForAll) {
  std::vector<unsigned char> codes(2 * 3, 0x40);  // all 2
  float scales[2] = {0.5f, 3};
  std::uint16_t bf16[2] = {0x3f00, 0x4040};
  for (const Shape& shape : {Shape{2, 1}, Shape{2}}) {
    MapSource source;
    source.put(".weight", DType::f8_e4m3, {2, 3}, codes);
    source.put(".weight_scale", DType::f32, shape, scales);
    EXPECT_EQ(all_of(source.resolve(2, 3).value()), (std::vector<float>{1, 1, 1, 6, 6, 6}));
    source.put(".weight_scale", DType::bf16, shape, bf16);
    EXPECT_EQ(all_of(source.resolve(2, 3).value()), (std::vector<float>{1, 1, 1, 6, 6, 6}));
  }
  MapSource source;
  source.put(".weight", DType::f8_e4m3, {2, 3}, codes);
  EXPECT_EQ(error_of(source.resolve(2, 3)),
            "test.safetensors: tensor 'm.weight': F8_E4M3 without scales; expected weight_scale_inv or weight_scale beside it");
  source.put(".weight_scale", DType::f32, {}, scales);
  EXPECT_EQ(all_of(source.resolve(2, 3).value()), (std::vector<float>{1, 1, 1, 1, 1, 1}));
}

TEST(Plain, BFloat16AndFloat16) {
  const std::uint16_t bf16[2] = {0x3f80, 0xc000};
  const std::uint16_t f16[2] = {0x3c00, 0xc000};
  EXPECT_EQ(row_of({.format = QuantFormat::bf16, .rows = 1, .cols = 2, .data = reinterpret_cast<const std::byte*>(bf16)}, 0),
            (std::vector<float>{1, -2}));
  EXPECT_EQ(row_of({.format = QuantFormat::f16, .rows = 1, .cols = 2, .data = reinterpret_cast<const std::byte*>(f16)}, 0),
            (std::vector<float>{1, -2}));
}

// What each format loses at most of a value, as a share of the largest magnitude that shares its scale: half a step of the code at its
// widest, plus the rounding of the scale itself.
double largest_loss(QuantFormat format) {
  switch (format) {
    case QuantFormat::f32:
      return 0;
    case QuantFormat::f16:
      return 0x1p-11;
    case QuantFormat::bf16:
      return 0x1p-8;
    case QuantFormat::nvfp4:  // half of the step from 4 to 6; the E4M3 scale rounds by 1/16
      return (1.0 / 6) * (1 + 6.0 / 16);
    case QuantFormat::mxfp4:  // the scale is up to twice too large
      return 2.0 / 6;
    case QuantFormat::int4_g32:  // half of one of seven steps; the BF16 scale rounds by 2^-9, seven times over
      return 0.5 / 7 + 7 * 0x1p-9;
    case QuantFormat::fp8_block:
    case QuantFormat::fp8_channel:
      return 16.0 / 448;  // half of the step from 416 to 448
    case QuantFormat::mxfp8:
      return 2 * 16.0 / 448;
  }
  return 0;
}

TEST(Formats, PackKeepsWhatTheFormatCanHold) {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kCols = 160;
  std::vector<float> values = normal_values(kRows * kCols);
  std::fill_n(values.begin(), 32, 0.0f);  // blocks of zeros
  for (const FormatInfo& format : formats()) {
    SCOPED_TRACE(format.name);
    const PackedMatrix packed(format.format, "m", values, kRows, kCols);
    if (format.find_bad_scale != nullptr) { EXPECT_FALSE(format.find_bad_scale(packed.weight(), 0, kRows).has_value()); }
    const std::vector<float> back = all_of(packed.weight());
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    double worst = 0;
    for (std::int64_t at = 0; at < kRows * kCols; ++at) {
      const std::int64_t row = at / kCols / format.block_rows * format.block_rows;
      const std::int64_t col = at % kCols / format.block_cols * format.block_cols;
      float in_block = format.format == QuantFormat::fp8_channel ? largest : 0;
      for (std::int64_t r = row; r < std::min(kRows, row + format.block_rows); ++r) {
        for (std::int64_t c = col; c < std::min(kCols, col + format.block_cols); ++c)
          in_block = std::max(in_block, std::fabs(values[static_cast<std::size_t>(r * kCols + c)]));
      }
      const auto i = static_cast<std::size_t>(at);
      ASSERT_LE(std::fabs(back[i] - values[i]), in_block * largest_loss(format.format) * (1 + 1e-6) + 0x1p-25) << at;
      worst = std::max<double>(worst, std::fabs(back[i] - values[i]));
    }
    EXPECT_EQ(worst == 0, format.format == QuantFormat::f32);
  }
}

// Packing what a format already holds changes nothing, or a checkpoint would lose a little each time it is converted.
TEST(Formats, PackingTwiceIsPackingOnce) {
  const std::vector<float> values = normal_values(130 * 160);
  for (const FormatInfo& format : formats()) {
    if (format.format == QuantFormat::mxfp4 || format.format == QuantFormat::mxfp8)
      continue;  // a block may not reach its largest code again
    const std::vector<float> once = all_of(PackedMatrix(format.format, "m", values, 130, 160).weight());
    const std::vector<float> twice = all_of(PackedMatrix(format.format, "m", once, 130, 160).weight());
    for (std::size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(twice[i], once[i], std::fabs(once[i]) * 0x1p-7) << format.name << " " << i;
  }
}

TEST(Resolve, DecidesByTheTensorsThatArePresent) {
  PackedMatrix packed(QuantFormat::nvfp4, "m", std::vector<float>(2 * 32, 1.0f), 2, 32);
  float scale_2[1] = {packed.weight().scale};
  MapSource source;
  EXPECT_EQ(error_of(source.resolve(2, 32)), "test.safetensors: tensor 'm.weight': missing");
  source.tensors["m.weight"] = *packed.find("m.weight");
  EXPECT_EQ(error_of(source.resolve(2, 32)), "test.safetensors: tensor 'm.weight_scale': missing; a weight in NVFP4 needs it");
  source.tensors["m.weight_scale"] = *packed.find("m.weight_scale");
  source.put(".weight_scale_2", DType::f32, {}, scale_2);
  ASSERT_TRUE(source.resolve(2, 32).ok());
  EXPECT_EQ(all_of(source.resolve(2, 32).value()), all_of(packed.weight()));
  EXPECT_EQ(error_of(source.resolve(4, 32)), "test.safetensors: tensor 'm.weight': expected U8 [4, 16], found U8 [2, 16]");
  scale_2[0] = 0;
  EXPECT_EQ(error_of(source.resolve(2, 32)), "test.safetensors: tensor 'm.weight_scale_2': expected a finite scale above zero, found 0");
}

}  // namespace
}  // namespace reckoner
