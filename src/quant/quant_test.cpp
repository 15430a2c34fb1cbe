#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

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
};

std::vector<float> row_of(const Weight& w, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(w.cols));
  info(w.format).dequantise(w, row, 0, w.cols, out.data());
  return out;
}

// Worked by hand from the published layout: byte 0x91 holds code 1 (0.5) then code 9 (-0.5); scale byte 0x40 is 2.0, 0x30 is 0.5.
TEST(Nvfp4, HandComputedBytes) {
  const unsigned char codes[16] = {0x91, 0x32, 0x54, 0x76, 0x10, 0xa8, 0xcb, 0xfd, 0x07, 0, 0, 0, 0, 0, 0, 0x70};
  const unsigned char scales[2] = {0x40, 0x30};
  const Weight w{.format = QuantFormat::nvfp4,
                 .rows = 1,
                 .cols = 32,
                 .data = reinterpret_cast<const std::byte*>(codes),
                 .scales = reinterpret_cast<const std::byte*>(scales),
                 .scale = 0.25f};
  const std::vector<float> expected = {0.25f, -0.25f, 0.5f,  0.75f, 1.0f,  1.5f,  2.0f, 3.0f, 0.0f, 0.25f, -0.0f,
                                       -0.5f, -0.75f, -1.0f, -1.5f, -3.0f, 0.75f, 0,    0,    0,    0,     0,
                                       0,     0,      0,     0,     0,     0,     0,    0,    0,    0.75f};
  EXPECT_EQ(row_of(w, 0), expected);
}

TEST(Nvfp4, PackKeepsWhatTheFormatCanHold) {
  std::mt19937 random(7);
  std::vector<float> values(4 * 48);
  for (float& value : values) value = std::normal_distribution<float>(0, 1)(random);
  for (int i = 0; i < 16; ++i) values[static_cast<std::size_t>(i)] = 0;  // one block of zeros
  const Nvfp4Matrix packed = pack_nvfp4(values, 4, 48);
  EXPECT_FALSE(find_bad_scale(packed.weight, 0, 4).has_value());
  std::vector<float> once;
  for (std::int64_t row = 0; row < 4; ++row) {
    for (const float value : row_of(packed.weight, row)) once.push_back(value);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float largest = 0;
    for (std::size_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j) largest = std::max(largest, std::fabs(values[j]));
    // Half a step of E2M1 at its widest (4 to 6) plus the rounding of the block scale (1/16 of 6).
    EXPECT_NEAR(once[i], values[i], largest / 6 * (1 + 6.0f / 16)) << i;
  }
}

TEST(Nvfp4, BadScalesAreNamed) {
  const std::vector<float> values(2 * 32, 1.0f);
  Nvfp4Matrix packed = pack_nvfp4(values, 2, 32);
  packed.scales[3] = std::byte{0x7f};
  EXPECT_EQ(find_bad_scale(packed.weight, 0, 2)->what, "NaN");
  EXPECT_EQ(find_bad_scale(packed.weight, 0, 2)->row, 1);
  EXPECT_EQ(find_bad_scale(packed.weight, 0, 2)->block, 1);
  packed.scales[3] = std::byte{0};
  EXPECT_EQ(find_bad_scale(packed.weight, 0, 2)->what, "0");
  packed.scales[3] = std::byte{0xb8};
  EXPECT_EQ(find_bad_scale(packed.weight, 0, 2)->what, "-1");
}

TEST(Plain, BFloat16AndFloat16) {
  const std::uint16_t bf16[2] = {0x3f80, 0xc000};
  const std::uint16_t f16[2] = {0x3c00, 0xc000};
  EXPECT_EQ(row_of({.format = QuantFormat::bf16, .rows = 1, .cols = 2, .data = reinterpret_cast<const std::byte*>(bf16)}, 0),
            (std::vector<float>{1, -2}));
  EXPECT_EQ(row_of({.format = QuantFormat::f16, .rows = 1, .cols = 2, .data = reinterpret_cast<const std::byte*>(f16)}, 0),
            (std::vector<float>{1, -2}));
}

TEST(Resolve, DecidesByTheTensorsThatArePresent) {
  Nvfp4Matrix packed = pack_nvfp4(std::vector<float>(2 * 32, 1.0f), 2, 32);
  float scale_2 = packed.weight.scale;
  MapSource source;
  EXPECT_EQ(resolve_weight(source, "m", 2, 32).error().what, "test.safetensors: tensor 'm.weight': missing");
  source.tensors["m.weight"] = {.data = packed.data.data(), .dtype = DType::u8, .shape = {2, 16}};
  EXPECT_EQ(resolve_weight(source, "m", 2, 32).error().what,
            "test.safetensors: tensor 'm.weight_scale': missing; a weight in NVFP4 needs it");
  source.tensors["m.weight_scale"] = {.data = packed.scales.data(), .dtype = DType::f8_e4m3, .shape = {2, 2}};
  source.tensors["m.weight_scale_2"] = {.data = reinterpret_cast<std::byte*>(&scale_2), .dtype = DType::f32, .shape = {}};
  ASSERT_TRUE(resolve_weight(source, "m", 2, 32).ok());
  EXPECT_EQ(row_of(resolve_weight(source, "m", 2, 32).value(), 1), row_of(packed.weight, 1));
  EXPECT_EQ(resolve_weight(source, "m", 4, 32).error().what, "test.safetensors: tensor 'm.weight': expected U8 [4, 16], found U8 [2, 16]");
  scale_2 = 0;
  EXPECT_EQ(resolve_weight(source, "m", 2, 32).error().what,
            "test.safetensors: tensor 'm.weight_scale_2': expected a finite scale above zero, found 0");
}

}  // namespace
}  // namespace reckoner
