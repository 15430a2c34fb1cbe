// Random numbers on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reckoner {

void fill_random_bytes(std::byte* to, std::int64_t count, std::uint32_t seed);
// E4M3 codes of 0.5 to 1.9.
void fill_e4m3_scales(std::byte* to, std::int64_t count, std::uint32_t seed);
// In [-1, 1).
void fill_floats(float* to, std::int64_t count, std::uint32_t seed);
void fill_bf16(std::uint16_t* to, std::int64_t count, std::uint32_t seed);

// Until all of the above is done.
void wait_until_filled();

// Reads and writes `count` bytes, a multiple of 16.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t count, void* stream);

}  // namespace reckoner
