// The emulated GPU finds what is wrong with a kernel: each kernel here is wrong in one way, or right where hardware's rules are peculiar.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/common/wgmma.cuh"

namespace reckoner::cuda {
namespace {

constexpr unsigned kLanes = 0xffffffffu;

template <class... Parameters>
void run(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes, std::type_identity_t<Parameters>... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = shared_bytes;
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, args...), cudaSuccess);
}

// As a warp does not go on together, whether this goes well is a matter of who comes first.
__global__ void reverse_kernel(int* values, bool waits) {
  int* const shared = dynamic_shared<int>();
  const int own = static_cast<int>(threadIdx.x), count = static_cast<int>(blockDim.x);
  shared[own] = values[own];
  if (waits) __syncthreads();
  values[own] = shared[count - 1 - own];
}

std::vector<int> counted(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(Emulator, ABarrierThatIsMissingIsSeen) {
  const std::vector<int> values = counted(256), expected(values.rbegin(), values.rend());
  std::vector<int> right = values, wrong = values;
  run(reverse_kernel, 1, 256, 256 * sizeof(int), right.data(), true);
  EXPECT_EQ(right, expected);
#if !defined(__SANITIZE_THREAD__)  // which says so itself
  run(reverse_kernel, 1, 256, 256 * sizeof(int), wrong.data(), false);
  EXPECT_NE(wrong, expected);
#endif
}

// Half of a block waits for all of it, the other half for what never comes.
__global__ void stuck_kernel() {
  if (threadIdx.x < 32) {
    meet<64>();
  } else {
    __syncthreads();
  }
}

TEST(EmulatorDeathTest, ThreadsThatWaitForEachOtherAreNamed) {
  EXPECT_DEATH(run(stuck_kernel, 1, 64, 0), "a barrier of its block in block 0 0 0, warp 1(.|\n)*all threads wait for each other");
}

// One warpgroup gives registers back, two take them: three times 168 were there.
template <int kRegisters>
__global__ void greedy_kernel() {
  if (threadIdx.x >= 256) {
    keep_registers<80>();
  } else {
    take_registers<kRegisters>();
  }
}

TEST(EmulatorDeathTest, MoreRegistersThanABlockHas) {
  run(greedy_kernel<208>, 1, 384, 0);
  EXPECT_DEATH(run(greedy_kernel<216>, 1, 384, 0), "thread waits for registers of its block");
}

__global__ void divergent_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = lane < 16 ? __shfl_xor_sync(kLanes, lane, 1) : static_cast<int>(__ballot_sync(kLanes, 1));
}

TEST(EmulatorDeathTest, LanesAtDifferentInstructions) {
  std::vector<int> out(32);
  EXPECT_DEATH(run(divergent_kernel, 1, 32, 0, out.data()), "lanes of a warp meet at different instructions");
}

// Copies whole blocks of 16 bytes and takes them when at most one group is under way: the last is not, so that it must wait for all.
__global__ void copy_kernel(const uint4* from, uint4* to, bool waits_for_all) {
  uint4* const shared = dynamic_shared<uint4>();
  for (int i = 0; i < 2; ++i) {
    copy_async(&shared[i], &from[i], true);
    commit_copies();
  }
  if (waits_for_all) {
    wait_for_copies<0>();
  } else {
    wait_for_copies<1>();
  }
  for (int i = 0; i < 2; ++i) to[i] = shared[i];
}

TEST(Emulator, ACopyThatNobodyWaitedForMayNotBeThere) {
  const std::vector<uint4> from = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  int missing = 0;
  for (int round = 0; round < 64; ++round) {
    std::vector<uint4> right(2), wrong(2);
    run(copy_kernel, 1, 1, 2 * sizeof(uint4), from.data(), right.data(), true);
    EXPECT_EQ(right[1].w, 8u);
    run(copy_kernel, 1, 1, 2 * sizeof(uint4), from.data(), wrong.data(), false);
    EXPECT_EQ(wrong[0].w, 4u);
    missing += wrong[1].w != 8;
  }
  EXPECT_GT(missing, 0);
  EXPECT_LT(missing, 64);  // early copies happen too
}

// The instructions' layouts, by the words of their description in src/kernels/cuda/common: out [16, 8] = a [16, 16] b [16, 8].
__global__ void product_kernel(const std::uint16_t* a, const std::uint16_t* b, float* out) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto pair = [](const std::uint16_t* from, int step) { return from[0] | std::uint32_t{from[step]} << 16; };
  float d[4] = {};
  mma_bf16(d, pair(a + g * 16 + 2 * t, 1), pair(a + (g + 8) * 16 + 2 * t, 1), pair(a + g * 16 + 2 * t + 8, 1),
           pair(a + (g + 8) * 16 + 2 * t + 8, 1), pair(b + 2 * t * 8 + g, 8), pair(b + (2 * t + 8) * 8 + g, 8));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

TEST(Emulator, TheMatrixInstruction) {
  std::vector<std::uint16_t> a(16 * 16), b(16 * 8);
  std::vector<float> out(16 * 8);
  const auto bits = [](int value) { return static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(value)) >> 16); };
  for (int i = 0; i < 256; ++i) a[static_cast<std::size_t>(i)] = bits(i * 7 % 23 - 11);
  for (int i = 0; i < 128; ++i) b[static_cast<std::size_t>(i)] = bits(i * 5 % 19 - 9);
  run(product_kernel, 1, 32, 0, a.data(), b.data(), out.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += ((row * 16 + k) * 7 % 23 - 11) * ((k * 8 + column) * 5 % 19 - 9);
      EXPECT_EQ(out[static_cast<std::size_t>(row * 8 + column)], static_cast<float>(sum)) << row << " " << column;
    }
  }
}

TEST(Emulator, MoreSharedMemoryThanAskedForIsRefused) {
  cudaLaunchConfig_t config{};
  config.blockDim = 32, config.dynamicSmemBytes = 64 << 10;
  EXPECT_EQ(cudaLaunchKernelEx(&config, reverse_kernel, nullptr, true), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

__global__ void add_kernel(int* value, int what) { atomicAdd(value, what); }

TEST(Emulator, ARecordedGraphRunsWhenItIsLaunched) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  int value = 0;
  cudaLaunchConfig_t config{};
  config.gridDim = 3, config.blockDim = 2, config.stream = stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernelEx(&config, add_kernel, &value, 7), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(value, 0);
  for (int times = 1; times <= 2; ++times) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(value, times * 6 * 7);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace reckoner::cuda
