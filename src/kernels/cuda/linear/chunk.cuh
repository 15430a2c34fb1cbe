// Weights as operands of a matrix instruction: what a lane of a quad (four lanes that share a row) holds of a row's next kColumns columns,
// and how that becomes BF16 pairs. A unit is eight columns of a lane: four pairs, two instructions. Which columns stand in a pair follows
// from how cheaply the codes come out; whoever makes the other operand asks column() and first() and second().
#pragma once

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/weights.cuh"

namespace reckoner::cuda {

template <QuantFormat kFormat>
struct Chunk;

template <>
struct Chunk<QuantFormat::bf16> {
  static constexpr int kColumns = 64, kUnits = 2;
  static constexpr int kPlanes = 2;       // of 64 bytes a row: each lane of the quad holds 16 of each
  static constexpr int kScaleBytes = 0;   // a row
  static constexpr float kFactor = 1;     // what the sums must be multiplied by, beside the tensor's scale
  static constexpr bool kScaled = false;  // the sums of each chunk have a scale of their own
  // Unit's first column in the chunk; pair i is of the columns first(i) and second(i) from there.
  __device__ static int column(int unit, int t) { return unit * 32 + t * 8; }
  __device__ static constexpr int first(int i) { return 2 * i; }
  __device__ static constexpr int second(int i) { return 2 * i + 1; }

  uint4 codes[kPlanes];
  __device__ void take_scales(const std::byte*, int, const std::uint32_t*) {}
  // The same in two steps, so that scales can be on their way for a while: a lane's part of a row's chunk, and taking that.
  __device__ static std::uint32_t fetch_scales(const std::byte*, int) { return 0; }
  __device__ void take_fetched(std::uint32_t, const std::uint32_t*) {}
  __device__ void pairs(int unit, std::uint32_t (&out)[4]) const {
    const uint4 c = codes[unit];
    out[0] = c.x, out[1] = c.y, out[2] = c.z, out[3] = c.w;
  }
  __device__ bool is_bad() const { return false; }  // a NaN goes through the products by itself
};

// A code with its exponent and mantissa where BF16 has them is its value times 2^-126; the scale as BF16 is made 2^118 times as large (at
// most 448 * 2^118), which leaves 2^-8. All products are exact: two significant bits times four.
template <>
struct Chunk<QuantFormat::nvfp4> {
  static constexpr int kColumns = 128, kUnits = 4;
  static constexpr int kPlanes = 1, kScaleBytes = 8;
  static constexpr float kFactor = 256;
  static constexpr bool kScaled = false;
  __device__ static int column(int unit, int t) { return t * 32 + unit * 8; }
  __device__ static constexpr int first(int i) { return i; }
  __device__ static constexpr int second(int i) { return i + 4; }

  uint4 codes[kPlanes];
  std::uint32_t scales[2];  // as pairs: of the lane's first 16 columns and of the others
  __device__ void take_scales(const std::byte* at, int t, const std::uint32_t* table) { take_fetched(half_at(at + t * 2), table); }
  __device__ static std::uint32_t fetch_scales(const std::byte* at, int t) { return half_at(at + t * 2); }
  __device__ void take_fetched(std::uint32_t two, const std::uint32_t* table) {
    scales[0] = table[two & 0xffu];
    scales[1] = table[two >> 8];
  }
  __device__ void pairs(int unit, std::uint32_t (&out)[4]) const {
    const std::uint32_t word = unit == 0 ? codes[0].x : unit == 1 ? codes[0].y : unit == 2 ? codes[0].z : codes[0].w;
    decode_e2m1(word, scales[unit / 2], out);
  }
  // Eight codes, of which pair i holds i and i + 4. A product puts a code's sign and its magnitude in their places at once: the factor is
  // the sum of two powers of two whose copies of the code do not overlap.
  __device__ static void decode_e2m1(std::uint32_t word, std::uint32_t scale, std::uint32_t (&out)[4]) {
    constexpr std::uint32_t kKept = 0x81c081c0u;
    const std::uint32_t upper = word >> 8;
    out[0] = multiply_pairs((word & 0x000f000fu) * 0x1040u & kKept, scale);
    out[1] = multiply_pairs((word & 0x00f000f0u) * 0x0104u & kKept, scale);
    out[2] = multiply_pairs((upper & 0x000f000fu) * 0x1040u & kKept, scale);
    out[3] = multiply_pairs((upper & 0x00f000f0u) * 0x0104u & kKept, scale);
  }
  // The pair for a scale's code: a table of all 256 is quicker than its making, and keeps a NaN.
  __device__ static std::uint32_t scale_pair(std::uint32_t code) {
    return __byte_perm(__float_as_uint(e4m3_to_float(code) * 0x1p118f), 0, 0x3232);
  }
  __device__ bool is_bad() const { return false; }
};

// E4M3 in the same way: 2^-120, made right by a product that is exact.
struct ChunkE4m3 {
  static constexpr int kColumns = 128, kUnits = 4;
  static constexpr int kPlanes = 2;
  static constexpr float kFactor = 1;
  __device__ static int column(int unit, int t) { return unit / 2 * 64 + t * 16 + unit % 2 * 8; }
  __device__ static constexpr int first(int i) { return i / 2 * 4 + i % 2; }
  __device__ static constexpr int second(int i) { return i / 2 * 4 + i % 2 + 2; }

  uint4 codes[kPlanes];
  __device__ static std::uint32_t decode(std::uint32_t shifted) {
    return multiply_pairs((shifted & 0x80008000u) | (shifted >> 4 & 0x07f007f0u), 0x7b807b80u);  // 2^120
  }
  __device__ void pairs(int unit, std::uint32_t (&out)[4]) const {
    const uint4 c = codes[unit / 2];
    const std::uint32_t low = unit % 2 == 0 ? c.x : c.z, high = unit % 2 == 0 ? c.y : c.w;
    out[0] = decode(low << 8), out[1] = decode(low), out[2] = decode(high << 8), out[3] = decode(high);
  }
  __device__ bool is_bad() const {
    std::uint32_t found = 0;
#pragma unroll
    for (const uint4& c : codes) {
      for (const std::uint32_t word : {c.x, c.y, c.z, c.w}) found |= (word & 0x7f7f7f7fu) + 0x01010101u;
    }
    return (found & 0x80808080u) != 0;
  }
};
template <>
struct Chunk<QuantFormat::fp8_channel> : ChunkE4m3 {
  static constexpr bool kScaled = false;
  static constexpr int kScaleBytes = 0;
  __device__ void take_scales(const std::byte*, int, const std::uint32_t*) {}
  __device__ static std::uint32_t fetch_scales(const std::byte*, int) { return 0; }
  __device__ void take_fetched(std::uint32_t, const std::uint32_t*) {}
};
template <>
struct Chunk<QuantFormat::fp8_block> : ChunkE4m3 {
  static constexpr bool kScaled = true;
  static constexpr int kScaleBytes = 4;
  float scale;
  __device__ void take_scales(const std::byte* at, int, const std::uint32_t*) { scale = float_at(at); }
  __device__ static std::uint32_t fetch_scales(const std::byte* at, int) { return word_at(at); }
  __device__ void take_fetched(std::uint32_t bits, const std::uint32_t*) { scale = __uint_as_float(bits); }
};

// Eight neighbouring columns, rounded, as a lane's operands of a unit.
template <class C>
__device__ __forceinline__ uint4 round_piece(const float4& low, const float4& high) {
  const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  return make_uint4(round_pair(all[C::first(0)], all[C::second(0)]), round_pair(all[C::first(1)], all[C::second(1)]),
                    round_pair(all[C::first(2)], all[C::second(2)]), round_pair(all[C::first(3)], all[C::second(3)]));
}

inline bool has_chunks(QuantFormat format) {
  using F = QuantFormat;
  return format == F::bf16 || format == F::nvfp4 || format == F::fp8_channel || format == F::fp8_block;
}

// Calls body.template operator()<format>() for a format that has chunks.
template <class Body>
void for_chunk_format(QuantFormat format, Body&& body) {
  using F = QuantFormat;
  if (format == F::bf16) body.template operator()<F::bf16>();
  if (format == F::nvfp4) body.template operator()<F::nvfp4>();
  if (format == F::fp8_channel) body.template operator()<F::fp8_channel>();
  if (format == F::fp8_block) body.template operator()<F::fp8_block>();
}

}  // namespace reckoner::cuda
