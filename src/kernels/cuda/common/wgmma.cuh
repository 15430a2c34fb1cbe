// The matrix instruction of compute capability 9.0: a warpgroup (four warps, the first a multiple of four) multiplies 64 rows, which it
// has in registers, with up to 256 columns that lie in shared memory, and goes on while that is done.
#pragma once

#include <cstdint>

namespace reckoner::cuda {

// Code for 9.0 and no other (sm_90a): elsewhere the kernels are empty, and nobody launches them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RECKONER_HAS_WGMMA 1
#else
#define RECKONER_HAS_WGMMA 0
#endif

#if RECKONER_HAS_WGMMA

// Before the first instruction, and whenever registers that one reads or adds to were written otherwise.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kLeft of the committed groups are under way.
template <int kLeft>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Where the columns lie: each is a row of 128 bytes (64 BF16 of the inner dimension), piece i of 16 bytes of row r at i ^ (r % 8); eight
// rows, 1024 bytes, lie behind each other. An instruction takes 32 bytes of each row: the next ones are at 2 more.
__device__ __forceinline__ std::uint64_t columns_at(std::uint32_t shared_address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 / 16} << 32,
                          kUnused = std::uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | (shared_address & 0x3ffffu) >> 4;
}

// d += a b (or d = a b, unless `add`) for a [64, 16], b [16, kColumns] of BF16. Of warp w and lane 4 g + t: a holds the pairs (2t, 2t + 1)
// of rows 16 w + g and 16 w + g + 8, then the pairs (2t + 8, 2t + 9); d the columns 8 j + 2t and 8 j + 2t + 1 of row 16 w + g in 4 j and
// 4 j + 1, of row 16 w + g + 8 in 4 j + 2 and 4 j + 3.
template <int kColumns>
struct Products;

#define RECKONER_8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RECKONER_16(i) RECKONER_8(i), RECKONER_8(i + 8)
#define RECKONER_32(i) RECKONER_16(i), RECKONER_16(i + 16)

template <>
struct Products<16> {
  __device__ __forceinline__ static void add(float (&d)[8], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, p, 1, 1, 0; }"
        : RECKONER_8(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<32> {
  __device__ __forceinline__ static void add(float (&d)[16], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
        : RECKONER_16(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<64> {
  __device__ __forceinline__ static void add(float (&d)[32], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
        : RECKONER_32(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<96> {
  __device__ __forceinline__ static void add(float (&d)[48], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %53, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "{%48, %49, %50, %51}, %52, p, 1, 1, 0; }"
        : RECKONER_32(0), RECKONER_16(32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<128> {
  __device__ __forceinline__ static void add(float (&d)[64], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0; }"
        : RECKONER_32(0), RECKONER_32(32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<160> {
  __device__ __forceinline__ static void add(float (&d)[80], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %85, 0; wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
        "{%80, %81, %82, %83}, %84, p, 1, 1, 0; }"
        : RECKONER_32(0), RECKONER_32(32), RECKONER_16(64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

template <>
struct Products<192> {
  __device__ __forceinline__ static void add(float (&d)[96], const std::uint32_t* a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "{%96, %97, %98, %99}, %100, p, 1, 1, 0; }"
        : RECKONER_32(0), RECKONER_32(32), RECKONER_32(64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  }
};

#undef RECKONER_8
#undef RECKONER_16
#undef RECKONER_32

// ---- barriers in shared memory ----

__device__ __forceinline__ void make_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Once all copies that the thread has asked for are there.
__device__ __forceinline__ void arrive_with_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_for_barrier(std::uint32_t barrier, int parity) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; bra again; done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// So that others see what make_barrier() made.
__device__ __forceinline__ void show_new_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// What was written to shared memory, and seen here, before what the matrix instruction reads from now on.
__device__ __forceinline__ void order_shared_before_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- threads of a block, blocks of a cluster ----

// The first kThreads threads, and no others, wait for each other.
template <int kThreads>
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
// Registers a thread of the warpgroup, which gives the rest back, or waits until it has as many.
template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ __forceinline__ void meet_in_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// What stands at an address of shared memory in another block of the cluster.
__device__ __forceinline__ float4 load_of_block(std::uint32_t shared_address, int block) {
  float4 four;
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(shared_address), "r"(block)
               : "memory");
  return four;
}

#endif

}  // namespace reckoner::cuda
