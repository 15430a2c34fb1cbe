// The conversions that the processor's kernels store rows with, against the scalar ones.
#include "kernels/cpu/rows/row_functions.h"

#include "cases_rows.h"

namespace reckoner {
namespace {

TEST(RowFunctions, RoundToBf16EqualsTheScalarConversion) {
  Random random(9);
  std::vector<float> values = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, -kNan, 3.4028235e38f, 1e-45f, std::bit_cast<float>(0x7f800001u)};
  for (int i = 0; i < 100000; ++i) {
    // Random bits, every third one at or next to a tie.
    auto bits = static_cast<std::uint32_t>(random.below(std::int64_t{1} << 32));
    if (i % 3 == 0) bits = (bits & 0xffff0000u) | static_cast<std::uint32_t>(0x7fff + random.below(3));
    values.push_back(std::bit_cast<float>(bits));
  }
  std::vector<std::uint16_t> expected;
  for (const float value : values) expected.push_back(f32_to_bf16(value));
  const DeviceInfo device = detect_cpu();
  const auto expect_equal = [&](const RowFunctions& functions) {
    std::vector<std::uint16_t> found(values.size());
    functions.round_to_bf16(values.data(), std::ssize(values), found.data());
    EXPECT_EQ(found, expected);
  };
  if (device.avx2) expect_equal(avx2::row_functions());
  if (device.avx512) expect_equal(avx512::row_functions());
}

// Codes and scale equal what write_row() writes, for blocks of any length and elements of any size.
TEST(RowFunctions, QuantiseEqualsTheScalarConversion) {
  Random random(17);
  const DeviceInfo device = detect_cpu();
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t count = 1 + random.below(kCacheBlock);
    std::vector<float> block = random.floats(count);
    // Elements of one size; of 24 binades, so that small codes occur; of all floats; and such that the scale is 1 and many are ties.
    const std::int64_t kind = random.below(4);
    for (float& value : block) {
      if (kind == 1) value = std::ldexp(value, -static_cast<int>(random.below(24)));
      if (kind == 2) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.below(std::int64_t{1} << 32)));
      if (kind == 3)
        value = static_cast<float>(random.below(1 << 10)) * std::ldexp(value < 0 ? -1.0f : 1.0f, -static_cast<int>(random.below(11)));
      if (kind == 3) value = value > 448.0f ? 448.0f : value;
    }
    if (kind == 3) block[0] = 448.0f;
    if (kind == 2 && random.below(8) == 0)
      std::fill(block.begin(), block.end(), std::bit_cast<float>(static_cast<std::uint32_t>(random.below(2000))));
    const CacheView view{.row_elements = count, .dtype = DType::f8_e4m3, .quantised_elements = count};
    std::vector<std::byte> expected(static_cast<std::size_t>(view.row_bytes())), found = expected;
    write_row(view, expected.data(), block.data());
    const auto expect_equal = [&](const RowFunctions& functions) {
      std::fill(found.begin(), found.end(), std::byte{0});
      const float scale = functions.quantise(block.data(), count, reinterpret_cast<std::uint8_t*>(found.data()));
      std::memcpy(found.data() + view.scales_offset_bytes(), &scale, sizeof(scale));
      ASSERT_EQ(found, expected) << "case " << i << " kind " << kind;
    };
    if (device.avx2) expect_equal(avx2::row_functions());
    if (device.avx512) expect_equal(avx512::row_functions());
  }
}

}  // namespace
}  // namespace reckoner
