// Every instruction that C++ has no word for, but those of wgmma.cuh: copies that a thread need not wait for, the matrix instruction,
// conversions. The emulator of tests/emulator puts a file of its own in this one's place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reckoner::cuda {

// What a launch asked for, beside what the kernel declares.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char reckoner_dynamic_shared[];
  return reinterpret_cast<T*>(reckoner_dynamic_shared);
}

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- kernels that overlap: launch.cuh says when ----

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- copies into shared memory ----

// Sixteen bytes; zeros, with nothing read, unless `there`.
__device__ inline void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// Sixteen, or four or eight, bytes to an address in shared memory.
__device__ inline void copy_async_to(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
template <int kBytes>
__device__ void copy_few_async_to(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}
template <int kBytes>
__device__ void copy_few_async(void* to, const void* from) {
  copy_few_async_to<kBytes>(shared_address(to), from);
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kLeft of the thread's groups are under way.
template <int kLeft>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// ---- the matrix instruction that every device since 8.0 has ----

// Four matrices of 8 x 8 halves: lane l gives the address of row l % 8 of matrix l / 8 and gets the pair (2t, 2t + 1) of row g of each.
__device__ inline void load_matrices(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same with each matrix transposed: rows 2t and 2t + 1 of column g.
__device__ inline void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// d += a b for a [16, 16] and b [16, 8] of BF16, d [16, 8] of float. With lane = 4 g + t: a holds the pairs of columns (2t, 2t + 1) of rows
// g and g + 8, then the pairs (2t + 8, 2t + 9) of the same; b the same pairs of rows of column g; d the columns 2t and 2t + 1 of row g,
// then of row g + 8. The 16 inner indices may stand for any 16 columns, as long as a and b agree.
__device__ inline void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- numbers ----

// Two products of BF16 numbers, each rounded once.
__device__ inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

// Two floats rounded to BF16: `low` in the low half.
__device__ inline std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float half_to_float(std::uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(bits)));
  return value;
}

// ---- loads and stores that say how ----

// What nobody reads again; where it stands, that is before wait_for_previous() if it is written so.
__device__ inline uint4 load_once(const void* at) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
}

// What another GPU reads or writes meanwhile.
__device__ inline void store_for_others(uint4* to, const uint4& value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ inline uint4 load_of_others(const uint4* from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// The value is made here, not later where it is used, nor anew.
__device__ __forceinline__ void make_now(float& value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void make_now(std::uint32_t& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void make_now(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void make_now(const std::byte*& pointer) { asm volatile("" : "+l"(pointer)); }

}  // namespace reckoner::cuda
