// The loops that machine.cpp times, an instruction set each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reckoner {

namespace avx2 {
// Reads `bytes` (a multiple of 256) and returns something that depends on all of them.
std::uint64_t read_all(const std::byte* data, std::int64_t bytes);
// Does 8 * 12 multiply-adds a round; returns something that depends on them.
float multiply_add_f32(std::int64_t rounds);
}  // namespace avx2

namespace avx512 {
std::uint64_t read_all(const std::byte* data, std::int64_t bytes);
float multiply_add_f32(std::int64_t rounds);  // 16 * 12 a round
}  // namespace avx512

namespace avx512bf16 {
float multiply_add_bf16(std::int64_t rounds);  // 32 * 12 a round
}  // namespace avx512bf16

}  // namespace reckoner
