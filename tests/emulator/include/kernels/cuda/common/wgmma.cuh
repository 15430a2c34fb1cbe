// The instructions of src/kernels/cuda/common/wgmma.cuh, where what each does is said, on the emulated GPU.
#pragma once

#include <array>

#include "kernels/cuda/common/instructions.cuh"

#define RECKONER_HAS_WGMMA 1

namespace reckoner::cuda {

inline void begin_products() {}
inline void commit_products() {
  int own = 0;
  emulated::meet_lanes(0xffffffffu, &own, [](void* const*) { emulated::end_group_in_warp(); });
}
template <int kLeft>
void wait_for_products() {
  int own = 0;
  emulated::meet_lanes(
      0xffffffffu, &own, [](void* const*) { emulated::finish_groups_in_warp(kLeft); }, emulated::Memory::ordered);
}

inline std::uint64_t columns_at(std::uint32_t shared_address) {
  if (shared_address % 1024 != 0) emulated::stop("columns of a product must begin at a multiple of 1024 bytes");
  return shared_address / 16;
}

// Each of the four warps has its own sixteen rows and the same columns: here each works by itself.
template <int kColumns>
struct Products {
  struct Lane {
    float* d;
    const std::uint32_t* a;
    std::uint64_t b;
    int add;
  };
  struct Work {
    std::array<float*, 32> d;
    float a[16][16];
    const unsigned char* b;  // of the piece of 128 bytes a row
    std::uint64_t first;     // byte in each row
    int add;
  };
  static void add(float (&d)[kColumns / 2], const std::uint32_t* a, std::uint64_t b, int add) {
    Lane own{d, a, b, add};
    emulated::meet_lanes(0xffffffffu, &own, begin);
  }

 private:
  RECKONER_NO_RACE static void begin(void* const* lanes) {
    Work work{};
    const auto& any = *static_cast<const Lane*>(lanes[0]);
    const auto address = static_cast<std::uint32_t>(any.b * 16);
    work.b = emulated::shared_at(address / 1024 * 1024), work.first = address % 1024, work.add = any.add;
    for (int lane = 0; lane < 32; ++lane) {
      const auto& own = *static_cast<const Lane*>(lanes[lane]);
      if (own.b != any.b || own.add != any.add) emulated::stop("lanes of a product name different columns");
      work.d[static_cast<std::size_t>(lane)] = own.d;
      place_pairs(work.a, lane, own.a);
    }
    emulated::begin_later_in_warp([work] { finish(work); });
  }
  // The columns are read where races are looked for, the sums of other lanes are not.
  static void finish(const Work& work) {
    float b[16][kColumns];
    for (int column = 0; column < kColumns; ++column) {
      for (int k = 0; k < 16; ++k) {
        const std::uint64_t byte = work.first + static_cast<std::uint64_t>(k) * 2,
                            piece = byte / 16 ^ static_cast<std::uint64_t>(column % 8);
        const auto* at = reinterpret_cast<const std::uint16_t*>(work.b + column * 128 + piece * 16 + byte % 16);
        b[k][column] = __uint_as_float(std::uint32_t{*at} << 16);
      }
    }
    add_products(work, b);
  }
  RECKONER_NO_RACE static void add_products(const Work& work, const float (&b)[16][kColumns]) {
    const auto place = [&](int row, int column) -> float& {
      return work.d[static_cast<std::size_t>(row % 8 * 4 + column % 8 / 2)][column / 8 * 4 + row / 8 * 2 + column % 2];
    };
    for (int row = 0; row < 16; ++row) {
      double sums[kColumns];
      for (int column = 0; column < kColumns; ++column) sums[column] = work.add != 0 ? static_cast<double>(place(row, column)) : 0.0;
      for (int k = 0; k < 16; ++k) {
        for (int column = 0; column < kColumns; ++column) sums[column] += static_cast<double>(work.a[row][k] * b[k][column]);
      }
      for (int column = 0; column < kColumns; ++column) place(row, column) = static_cast<float>(sums[column]);
    }
  }
};

// ---- barriers in shared memory ----

// Four fields in the eight bytes that hardware has.
struct SharedBarrier {
  std::uint16_t expected, left;
  std::uint32_t phase;
};
inline SharedBarrier* barrier_at(std::uint32_t address) { return reinterpret_cast<SharedBarrier*>(emulated::shared_at(address)); }

RECKONER_NO_RACE inline void make_barrier(std::uint32_t barrier, int arrivals) {
  *barrier_at(barrier) = {.expected = static_cast<std::uint16_t>(arrivals), .left = static_cast<std::uint16_t>(arrivals), .phase = 0};
}
RECKONER_NO_RACE inline void arrive_at(SharedBarrier* barrier) {
  emulated::publish(barrier);
  if (--barrier->left == 0) barrier->left = barrier->expected, ++barrier->phase;
}
inline void arrive(std::uint32_t barrier) { arrive_at(barrier_at(barrier)); }
inline void arrive_with_copies(std::uint32_t barrier) {
  emulated::begin_later([at = barrier_at(barrier)] { arrive_at(at); });
}
// The phase of `parity` has ended.
inline void wait_for_barrier(std::uint32_t barrier, int parity) {
  SharedBarrier* at = barrier_at(barrier);
  const auto ended = [&]() RECKONER_NO_RACE { return at->phase % 2 != static_cast<std::uint32_t>(parity); };
  emulated::wait_until(ended, "a barrier in shared memory");
  emulated::observe(at);
}
inline void show_new_barriers() {}
inline void order_shared_before_products() {}

// ---- threads of a block, blocks of a cluster ----

template <int kThreads>
void meet() {
  emulated::meet_block(1, kThreads);
}
template <int kRegisters>
void keep_registers() {
  emulated::set_registers(kRegisters);
}
template <int kRegisters>
void take_registers() {
  emulated::set_registers(kRegisters);
}
inline void meet_in_cluster() { emulated::meet_cluster(); }
inline float4 load_of_block(std::uint32_t shared_address, int block) {
  const unsigned char* own = emulated::shared_at(shared_address);
  return *reinterpret_cast<const float4*>(emulated::shared_memory_of(static_cast<unsigned>(block)) + (own - emulated::shared_memory()));
}

}  // namespace reckoner::cuda
