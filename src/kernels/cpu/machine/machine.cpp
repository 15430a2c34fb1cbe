#include "kernels/cpu/machine/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/cpu/machine/loops.h"
#include "tensor/tensor.h"

namespace reckoner {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Portable stand-ins for processors without AVX2: nothing is fast there, and the yardstick need not be exact.
std::uint64_t read_all_scalar(const std::byte* data, std::int64_t bytes) {
  std::uint64_t all = 0;
  for (std::int64_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof(word));
    all ^= word;
  }
  return all;
}

float multiply_add_scalar(std::int64_t rounds) {
  volatile float x = 0.5f;
  float sums[8] = {};
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum += x * x;
  }
  return sums[0] + sums[7];
}

// Best of `passes` times that all threads together took for one call of body(thread) each.
template <class Body>
double best_seconds(ThreadPool& pool, int passes, Body&& body) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(pool.threads(), [&](std::int64_t item, int) { body(item); });
    best = std::min(best, seconds_since(start));
  }
  return best;
}

template <class Loop>
double multiply_adds_per_second(ThreadPool& pool, Loop&& loop, double a_round) {
  constexpr std::int64_t kRounds = 1 << 20;
  std::atomic<float> sink = 0;
  const double seconds = best_seconds(pool, 5, [&](std::int64_t) { sink.store(loop(kRounds), std::memory_order_relaxed); });
  return static_cast<double>(pool.threads()) * static_cast<double>(kRounds) * a_round / seconds;
}

}  // namespace

double measure_read_bandwidth(ThreadPool& pool) {
  constexpr std::int64_t kBytes = 256 << 20;
  const DeviceInfo device = detect_cpu();
  const auto read = device.avx512 ? avx512::read_all : device.avx2 ? avx2::read_all : read_all_scalar;
  const Buffer buffer(kBytes);
  const std::int64_t share = kBytes / pool.threads() / 256 * 256;
  pool.parallel_for(pool.threads(),
                    [&](std::int64_t item, int) { std::memset(buffer.data() + item * share, 1, static_cast<std::size_t>(share)); });
  std::atomic<std::uint64_t> sink = 0;
  const double seconds = best_seconds(pool, 5, [&](std::int64_t item) { sink.fetch_add(read(buffer.data() + item * share, share)); });
  return static_cast<double>(share * pool.threads()) / seconds;
}

MultiplyAddPeaks measure_multiply_adds(ThreadPool& pool, const DeviceInfo& device) {
  MultiplyAddPeaks peaks;
  if (device.avx512) {
    peaks.f32 = multiply_adds_per_second(pool, avx512::multiply_add_f32, 16 * 12);
  } else if (device.avx2) {
    peaks.f32 = multiply_adds_per_second(pool, avx2::multiply_add_f32, 8 * 12);
  } else {
    peaks.f32 = multiply_adds_per_second(pool, multiply_add_scalar, 8);
  }
  if (device.avx512_bf16) peaks.bf16 = multiply_adds_per_second(pool, avx512bf16::multiply_add_bf16, 32 * 12);
  return peaks;
}

}  // namespace reckoner
