#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/hardware.h"

namespace reckoner {
namespace {

TEST(DType, NamesAndSizesAreSafetensors) {
  EXPECT_EQ(name(DType::f8_e4m3), "F8_E4M3");
  EXPECT_EQ(dtype_from_name("BF16"), DType::bf16);
  EXPECT_EQ(dtype_from_name("F4"), std::nullopt);
  EXPECT_EQ(size_bytes(DType::i64), 8);
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
    EXPECT_EQ(dtype_from_name(name(static_cast<DType>(i))), static_cast<DType>(i));
  }
}

// Values of the OCP 8-bit floating point specification, table of E4M3.
TEST(Float8, E4M3MatchesTheSpecification) {
  EXPECT_EQ(e4m3_to_f32(0x00), 0.0f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x07), 0x1.cp-7f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xff)));
}

TEST(Float8, RoundTripAndTiesToEven) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(static_cast<std::uint8_t>(code))), code) << code;
  }
  for (int code = 0; code < 0x7e; ++code) {  // half way between neighbours: the even code
    const float low = e4m3_to_f32(static_cast<std::uint8_t>(code));
    const float high = e4m3_to_f32(static_cast<std::uint8_t>(code + 1));
    EXPECT_EQ(f32_to_e4m3((low + high) / 2), code % 2 == 0 ? code : code + 1) << code;
  }
  EXPECT_EQ(f32_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-1e9f), 0xfe);
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

// Against a search through all codes: values of every binade, and the neighbours of every midpoint.
TEST(Float8, E4M3IsTheNearest) {
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i) values.push_back(std::ldexp(1.0f + static_cast<float>(i % 97) / 97.0f, i % 23 - 13));
  for (int code = 0; code < 0x7e; ++code) {
    const float middle = (e4m3_to_f32(static_cast<std::uint8_t>(code)) + e4m3_to_f32(static_cast<std::uint8_t>(code + 1))) / 2;
    values.insert(values.end(), {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1000.0f)});
  }
  for (const float value : values) {
    int expected = 0;
    for (int code = 1; code < 0x7f; ++code) {
      const double now = std::fabs(static_cast<double>(value) - e4m3_to_f32(static_cast<std::uint8_t>(code)));
      const double best = std::fabs(static_cast<double>(value) - e4m3_to_f32(static_cast<std::uint8_t>(expected)));
      if (now < best || (now == best && code % 2 == 0)) expected = code;
    }
    EXPECT_EQ(f32_to_e4m3(value), expected) << value;
    EXPECT_EQ(f32_to_e4m3(-value), expected | 0x80) << value;
  }
}

TEST(BFloat16, RoundsTiesToEvenAndKeepsNaN) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(0x1.01p0f), 0x3f80);  // 1 + 2^-8: a tie, to even
  EXPECT_EQ(f32_to_bf16(0x1.03p0f), 0x3f82);  // 1 + 3 * 2^-8: a tie, to even
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Float16, MatchesTheStandard) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xc000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e00)));
}

TEST(Tensor, RowsAndReshapeShareMemory) {
  const Buffer buffer(4 * 3 * 5);
  const Tensor whole = buffer.tensor(DType::f32, {3, 5});
  const Tensor part = whole.rows(1, 2);
  EXPECT_EQ(part.shape, (Shape{2, 5}));
  EXPECT_EQ(part.data, whole.data + 20);
  EXPECT_EQ(whole.reshaped({5, 3}).data, whole.data);
  EXPECT_EQ(whole.shape.to_string(), "[3, 5]");
}

// The limits of the CUDA programming guide: 227 KiB a block on 9.0 and 10.x, 99 KiB on 8.9 and 12.x.
TEST(Hardware, ProfilesHaveTheSharedMemoryOfTheirGeneration) {
  for (const HardwareProfile& profile : hardware_profiles()) {
    const bool large = profile.cuda.major == 9 || profile.cuda.major == 10;
    EXPECT_EQ(profile.cuda.shared_bytes_per_block, (large ? 227 : 99) * 1024) << profile.name;
    EXPECT_EQ(find_profile(profile.name), &profile);
    EXPECT_TRUE(profile.cuda.present());
  }
  EXPECT_EQ(find_profile("abacus"), nullptr);
  EXPECT_FALSE(detect_cpu().cuda.present());
}

}  // namespace
}  // namespace reckoner
