// A radix select whose passes are launches: what one pass counts, every block of the next one reads. All counts are integers, so the order
// in which they are added does not show.
#include "kernels/cuda/attention/select_split.cuh"

#include "kernels/cuda/attention/select_parts.cuh"
#include "kernels/cuda/common/numbers.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = kSelectChunk / kThreads;  // neighbouring scores
static_assert(kEach == kOrdersOfLoad);

// Counts the second digit of those with the first.
__global__ void __launch_bounds__(kThreads) second_digit_kernel(Selecting args) {
  begin_kernel();
  __shared__ std::int32_t histogram[kSecondDigits];
  __shared__ SharedReached shared;
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kSelectChunk + thread * kEach;
  const int context = args.positions[token] + 1;
  if (context <= args.top_k || static_cast<int>(blockIdx.x) * kSelectChunk >= context) return;
  std::uint32_t orders[kEach];
  load_orders(args.orders + token * args.stride + first, orders);
  for (int i = thread; i < kSecondDigits; i += kThreads) histogram[i] = 0;
  std::int32_t* digits = args.digits + token * kLaterDigits;
  const Reached reached = find_digit<kThreads, kFirstDigits>(args.first_digits + token * kFirstDigits, args.top_k, shared);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i < context && orders[i] >> kFirstShift == reached.digits)
      atomicAdd(&histogram[orders[i] >> kSecondShift & (kSecondDigits - 1)], 1);
  }
  __syncthreads();
  for (int i = thread; i < kSecondDigits; i += kThreads) {
    if (histogram[i] != 0) atomicAdd(&digits[i], histogram[i]);
  }
  if (blockIdx.x == 0 && thread == 0) args.reached[token * 2] = reached;
}

// Counts the third digit of those with the first two, and what each chunk holds.
__global__ void __launch_bounds__(kThreads) third_digit_kernel(Selecting args) {
  begin_kernel();
  __shared__ std::int32_t histogram[kThirdDigits];
  __shared__ SharedReached shared;
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kSelectChunk + thread * kEach;
  const int context = args.positions[token] + 1;
  if (context <= args.top_k || static_cast<int>(blockIdx.x) * kSelectChunk >= context) return;
  std::uint32_t orders[kEach];
  load_orders(args.orders + token * args.stride + first, orders);
  for (int i = thread; i < kThirdDigits; i += kThreads) histogram[i] = 0;
  std::int32_t* digits = args.digits + token * kLaterDigits;
  if (blockIdx.x == 0) {
    for (int i = thread; i < kFirstDigits; i += kThreads) args.first_digits[token * kFirstDigits + i] = 0;
  }
  const Reached one = args.reached[token * 2];
  Reached reached = find_digit<kThreads, kSecondDigits>(digits, one.wanted, shared);
  reached.digits |= one.digits << (kFirstShift - kSecondShift);
  int above = 0, alike = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i >= context) continue;
    const std::uint32_t two = orders[i] >> kSecondShift;
    above += two > reached.digits;
    if (two != reached.digits) continue;
    ++alike;
    atomicAdd(&histogram[orders[i] & (kThirdDigits - 1)], 1);
  }
  __syncthreads();
  for (int i = thread; i < kThirdDigits; i += kThreads) {
    if (histogram[i] != 0) atomicAdd(&digits[kSecondDigits + i], histogram[i]);
  }
  const int counted = block_sum<kThreads>(above | alike << 16, shared.of_warp);  // both at most 1024
  if (thread != 0) return;
  args.chunks[token * (args.stride / kSelectChunk) + blockIdx.x] = {.above = counted & 0xffff, .alike = counted >> 16};
  if (blockIdx.x == 0) args.reached[token * 2 + 1] = reached;
}

// Writes the chunk's selected positions behind those of the chunks before it.
__global__ void __launch_bounds__(kThreads, 4) emit_kernel(Selecting args) {
  begin_kernel();
  __shared__ SharedReached shared;
  __shared__ int listed, list[kThreads];
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), chunk = static_cast<int>(blockIdx.x), first = chunk * kSelectChunk + thread * kEach;
  const int context = args.positions[token] + 1;
  if (context <= args.top_k) return select_all(args, token, chunk * kSelectChunk, (chunk + 1) * kSelectChunk, context);
  if (chunk * kSelectChunk >= context) return;
  const std::uint32_t* all = args.orders + token * args.stride;
  std::uint32_t orders[kEach];
  load_orders(all + first, orders);
  const std::int32_t* digits = args.digits + token * kLaterDigits;
  const Reached two = args.reached[token * 2 + 1];
  Reached threshold = find_digit<kThreads, kThirdDigits>(digits + kSecondDigits, two.wanted, shared);
  threshold.digits |= two.digits << kSecondShift;
  // Chunks with orders whose first two digits are the threshold's are few, unless many scores are equal: they are counted again.
  int above = 0, ties = 0;
  const ChunkCounts* chunks = args.chunks + token * (args.stride / kSelectChunk);
  for (int base = 0; base < chunk; base += kThreads) {
    if (thread == 0) listed = 0;
    __syncthreads();
    if (base + thread < chunk) {
      const ChunkCounts counts = chunks[base + thread];
      above += counts.above;
      if (counts.alike > 0) list[atomicAdd(&listed, 1)] = base + thread;
    }
    __syncthreads();
    for (int i = 0; i < listed; ++i) {
      std::uint32_t others[kEach];
      load_orders(all + list[i] * kSelectChunk + thread * kEach, others);
#pragma unroll
      for (const std::uint32_t order : others) {
        above += order > threshold.digits && order >> kSecondShift == two.digits;
        ties += order == threshold.digits;
      }
    }
    __syncthreads();
  }
  above = block_sum<kThreads>(above, shared.of_warp);
  ties = block_sum<kThreads>(ties, shared.of_warp);
  int total;
  const int before = sum_before<kThreads>(count_orders(orders, first, context, threshold.digits), shared.of_warp, total);
  emit(orders, first, context, threshold, above + (before & 0xffff), ties + (before >> 16), args.selected + token * args.top_k);
  if (chunk == 0 && thread == 0) args.counts[token] = args.top_k;
}

}  // namespace

void select_split(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(tokens);
  const dim3 grid(blocks_for(max_context, kSelectChunk), rows);
  if (max_context <= selecting.top_k) {
    launch(emit_kernel, grid, kThreads, 0, stream, selecting);
  } else {
    launch(second_digit_kernel, grid, kThreads, 0, stream, selecting);
    launch(third_digit_kernel, grid, kThreads, 0, stream, selecting);
    launch(emit_kernel, grid, kThreads, 0, stream, selecting);
  }
}

}  // namespace reckoner::cuda
