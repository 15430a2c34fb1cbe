// How the kernels' benchmark measures: memory with random contents, calls recorded in a graph, and a line for each.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "fill.h"
#include "kernels/cuda/catalogue.h"
#include "quant/format.h"

namespace reckoner {

inline void expect_success(cudaError_t error) { CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

// Device memory of this measurement, freed with it.
class Memory {
 public:
  Memory() = default;
  ~Memory() {
    for (void* block : blocks_) static_cast<void>(cudaFree(block));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* take(std::int64_t size_bytes) {
    void* block = nullptr;
    expect_success(cudaMalloc(&block, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 256))));
    blocks_.push_back(block);
    return static_cast<std::byte*>(block);
  }
  Tensor floats(const Shape& shape) {
    const Tensor tensor{.data = take(shape.elements() * 4), .dtype = DType::f32, .shape = shape};
    fill_floats(tensor.f32(), shape.elements(), ++seed_);
    return tensor;
  }
  Tensor ints(const Shape& shape, const std::vector<std::int32_t>& values) {
    const Tensor tensor{.data = take(shape.elements() * 4), .dtype = DType::i32, .shape = shape};
    if (!values.empty()) expect_success(cudaMemcpy(tensor.data, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    return tensor;
  }
  Weight weight(QuantFormat format, std::int64_t rows, std::int64_t cols) { return weights(format, rows, cols, 1).front(); }
  // One after the other, as the uploader places experts.
  std::vector<Weight> weights(QuantFormat format, std::int64_t rows, std::int64_t cols, std::int64_t count) {
    const FormatInfo& layout = info(format);
    const std::int64_t data_bytes = rows * layout.row_bytes(cols);
    const std::int64_t scale_bytes = (rows + layout.block_rows - 1) / layout.block_rows * layout.scale_row_bytes(cols);
    std::byte* data = take(count * data_bytes);
    std::byte* scales = scale_bytes == 0 ? nullptr : take(count * scale_bytes);
    if (format == QuantFormat::bf16) {
      fill_bf16(reinterpret_cast<std::uint16_t*>(data), count * data_bytes / 2, ++seed_);
    } else if (format == QuantFormat::nvfp4) {
      fill_random_bytes(data, count * data_bytes, ++seed_);
      fill_e4m3_scales(scales, count * scale_bytes, ++seed_);
    } else {  // FP8
      fill_e4m3_scales(data, count * data_bytes, ++seed_);
      fill_floats(reinterpret_cast<float*>(scales), count * scale_bytes / 4, ++seed_);
    }
    std::vector<Weight> list;
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back({.format = format,
                      .rows = rows,
                      .cols = cols,
                      .data = data + i * data_bytes,
                      .scales = scales == nullptr ? nullptr : scales + i * scale_bytes,
                      .scale = 0.01f});
    }
    return list;
  }

 private:
  std::vector<void*> blocks_;
  std::uint32_t seed_ = 0;
};

struct Bench {
  DeviceInfo device;
  Catalogue catalogue = cuda_catalogue();
  ThreadPool pool{1};
  cudaStream_t stream = nullptr;
  double bytes_a_second = 0;
  double multiply_adds_a_second = 0;
  std::string only;
  bool all_candidates = false;
};

// Seconds that one of `calls` calls takes; 0: they could not be recorded.
inline double time_of(Bench& bench, int calls, const std::function<void(int)>& call) {
  call(0);
  expect_success(cudaStreamSynchronize(bench.stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  expect_success(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) call(i);
  if (cudaStreamEndCapture(bench.stream, &graph) != cudaSuccess || cudaGraphInstantiate(&program, graph, 0) != cudaSuccess) {
    std::printf("not recorded: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 0;
  }
  cudaEvent_t begin = nullptr, end = nullptr;
  expect_success(cudaEventCreate(&begin));
  expect_success(cudaEventCreate(&end));
  std::vector<float> took;
  for (int i = 0; i < 9; ++i) {
    expect_success(cudaEventRecord(begin, bench.stream));
    expect_success(cudaGraphLaunch(program, bench.stream));
    expect_success(cudaEventRecord(end, bench.stream));
    expect_success(cudaStreamSynchronize(bench.stream));
    float milliseconds = 0;
    expect_success(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) took.push_back(milliseconds);
  }
  static_cast<void>(cudaEventDestroy(begin));
  static_cast<void>(cudaEventDestroy(end));
  static_cast<void>(cudaGraphExecDestroy(program));
  static_cast<void>(cudaGraphDestroy(graph));
  std::nth_element(took.begin(), took.begin() + std::ssize(took) / 2, took.end());
  return static_cast<double>(took[took.size() / 2]) / 1e3 / calls;
}

// What one call must move and do at least.
struct Least {
  double bytes, multiply_adds;
};

template <class Args>
void measure_kernel(Bench& bench, const Kernel<Args>& kernel, const std::string& shape, const std::vector<Args>& variants,
                    const Least& least) {
  Memory memory;
  Lane lane{bench.pool, memory.take(kernel.workspace_bytes(variants.front(), 1)), bench.stream};
  const auto call = [&](int i) { kernel.run(variants[static_cast<std::size_t>(i) % variants.size()], lane); };
  const int calls = std::max(static_cast<int>(variants.size()), 8);
  const double seconds = time_of(bench, calls, call);
  if (seconds == 0)
    return static_cast<void>(std::printf("%-15s %-38s %-26s not recorded\n", Args::kName.data(), shape.c_str(), kernel.name.data()));
  const double by_bytes = least.bytes / bench.bytes_a_second, by_work = least.multiply_adds / bench.multiply_adds_a_second;
  std::printf("%-15s %-38s %-26s %9.2f us %6.0f GB/s %6.1f TFLOP/s  %-9s %8.2f us %5.1f %%\n", Args::kName.data(), shape.c_str(),
              kernel.name.data(), seconds * 1e6, least.bytes / seconds * 1e-9, 2e-12 * least.multiply_adds / seconds,
              by_bytes > by_work ? "bandwidth" : "matrix", std::max(by_bytes, by_work) * 1e6, 100 * std::max(by_bytes, by_work) / seconds);
  std::fflush(stdout);
}

// Times the op with each of `variants` in turn: the kernel that serves, or every one that could. Generic ones are left out where they would
// take long.
template <class Args>
void measure(Bench& bench, const std::string& shape, const std::vector<Args>& variants, const Least& least) {
  if ((std::string(Args::kName) + " " + shape).find(bench.only) == std::string::npos) return;
  const Args& args = variants.front();
  const std::vector<Kernel<Args>>& list = bench.catalogue.of<Args>();
  const Kernel<Args>* const serving = choose_kernel(list, args.key(), bench.device);
  CHECK(serving != nullptr, Args::kName);
  for (const Kernel<Args>& kernel : list) {
    const bool is_generic = list.size() > 1 && &kernel == &list.back();
    const bool is_long = least.bytes > 1e8 || least.multiply_adds > 1e10;
    const bool wanted = bench.all_candidates && kernel.supports(args.key(), bench.device).yes && !(is_generic && is_long);
    if (&kernel == serving || wanted) measure_kernel(bench, kernel, shape, variants, least);
  }
}

}  // namespace reckoner
