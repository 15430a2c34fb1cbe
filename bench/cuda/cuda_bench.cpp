// cuda_bench [--rank] [--all-candidates] [PART OF A LINE]
//
// Times the CUDA kernels at the sizes of GLM-5 (--rank: of one of eight ranks), with random weights, next to the device's own ceilings.
// Each line: op, shape, kernel (--all-candidates: also those that would not be chosen), time, what bounds it, and the share of that bound
// that was reached. Every measurement is a CUDA graph of several calls on rotating weights (more than the cache holds), replayed; the
// median counts.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "fill.h"
#include "kernels/cuda/catalogue.h"
#include "quant/format.h"

namespace reckoner {
namespace {

void expect_success(cudaError_t error) { CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

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
double time_of(Bench& bench, int calls, const std::function<void(int)>& call) {
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

// ---- ceilings ----

double copy_bandwidth(Bench& bench) {
  Memory memory;
  const std::int64_t size = std::int64_t{2} << 30;
  std::byte* from = memory.take(size);
  std::byte* to = memory.take(size);
  fill_random_bytes(from, size, 1);
  const double seconds = time_of(bench, 4, [&](int) { copy_bytes(to, from, size, bench.stream); });
  return 2.0 * static_cast<double>(size) / seconds;
}

// BF16 matrix products of the vendor's library, when it is there: multiply-adds a second, or 0.
double matrix_peak(Bench& bench) {
  void* library = dlopen("libcublas.so.13", RTLD_NOW);
  if (library == nullptr) return 0;
  using Create = int (*)(void**);
  using SetStream = int (*)(void*, cudaStream_t);
  using Multiply = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*,
                           int, int, int, int);
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  const auto set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
  const auto multiply = reinterpret_cast<Multiply>(dlsym(library, "cublasGemmEx"));
  void* handle = nullptr;
  if (create == nullptr || set_stream == nullptr || multiply == nullptr || create(&handle) != 0) return 0;
  set_stream(handle, bench.stream);
  constexpr int kSize = 8192, kBf16 = 14, kFloatSums = 68, kDefault = -1;
  Memory memory;
  std::byte* matrices[3];
  for (std::byte*& matrix : matrices) {
    matrix = memory.take(std::int64_t{2} * kSize * kSize);
    fill_bf16(reinterpret_cast<std::uint16_t*>(matrix), std::int64_t{kSize} * kSize, 7);
  }
  const float one = 1, zero = 0;
  const double seconds = time_of(bench, 4, [&](int) {
    multiply(handle, 1, 0, kSize, kSize, kSize, &one, matrices[0], kBf16, kSize, matrices[1], kBf16, kSize, &zero, matrices[2], kBf16,
             kSize, kFloatSums, kDefault);
  });
  return static_cast<double>(kSize) * kSize * kSize / seconds;
}

// ---- ops ----

std::string describe(std::int64_t tokens, QuantFormat format, std::int64_t rows, std::int64_t cols, Precision precision) {
  return std::to_string(tokens) + " x " + std::string(info(format).name) + " [" + std::to_string(rows) + ", " + std::to_string(cols) + "]" +
         (precision == Precision::exact ? " exact" : "");
}

void bench_linear(Bench& bench, QuantFormat format, std::int64_t rows, std::int64_t cols, const std::vector<std::int64_t>& tokens,
                  Precision precision = Precision::fast) {
  Memory memory;
  std::vector<Weight> weights;
  std::int64_t total = 0;
  while (total < (std::int64_t{300} << 20)) {
    weights.push_back(memory.weight(format, rows, cols));
    total += weight_bytes(weights.back());
  }
  for (const std::int64_t count : tokens) {
    std::vector<LinearArgs> variants;
    const Tensor x = memory.floats({count, cols}), y = memory.floats({count, rows});
    for (const Weight& w : weights) variants.push_back({.x = x, .w = w, .y = y, .precision = precision});
    const Cost cost_of = cost(variants.front());
    measure(bench, describe(count, format, rows, cols, precision), variants, {cost_of.bytes, cost_of.multiply_adds});
  }
}

// Of `rows` rows each; the last in float, where it is said so.
void bench_group(Bench& bench, QuantFormat format, const std::vector<std::int64_t>& rows, std::int64_t cols,
                 const std::vector<std::int64_t>& tokens, Precision last, bool normed) {
  Memory memory;
  std::vector<std::vector<Weight>> weights;
  std::int64_t total = 0;
  while (total < (std::int64_t{300} << 20)) {
    weights.emplace_back();
    for (const std::int64_t one : rows) {
      weights.back().push_back(memory.weight(format, one, cols));
      total += weight_bytes(weights.back().back());
    }
  }
  for (const std::int64_t count : tokens) {
    LinearGroupArgs args{
        .x = memory.floats({count, cols}), .norm = {}, .epsilon = 1e-6f, .count = static_cast<int>(rows.size()), .parts = {}};
    if (normed) args.norm = memory.floats({cols});
    std::string shape = std::to_string(count) + " x " + std::string(info(format).name) + " [";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      args.parts[i] = {.w = {}, .y = memory.floats({count, rows[i]}), .precision = i + 1 < rows.size() ? Precision::fast : last};
      shape += (i == 0 ? "" : "|") + std::to_string(rows[i]);
    }
    std::vector<LinearGroupArgs> variants;
    for (const std::vector<Weight>& some : weights) {
      for (std::size_t i = 0; i < some.size(); ++i) args.parts[i].w = some[i];
      variants.push_back(args);
    }
    const Cost cost_of = cost(args);
    measure(bench, shape + ", " + std::to_string(cols) + "]" + (normed ? " normed" : ""), variants, {cost_of.bytes, cost_of.multiply_adds});
  }
}

// Tokens choose eight of the experts at random, otherwise in each variant.
void bench_experts(Bench& bench, QuantFormat format, std::int64_t rows, std::int64_t cols, LinearExpertsArgs::Rows by,
                   const std::vector<std::int64_t>& tokens, Precision precision = Precision::fast) {
  constexpr std::int64_t kExperts = 256, kTopK = 8;
  Memory memory;
  const std::vector<Weight> experts = memory.weights(format, rows, cols, kExperts);
  std::mt19937 random(3);
  for (const std::int64_t count : tokens) {
    const std::int64_t slots = count * kTopK;
    const Tensor x = memory.floats({by == LinearExpertsArgs::Rows::by_token ? count : slots, cols}), y = memory.floats({slots, rows});
    std::vector<LinearExpertsArgs> variants;
    double touched = 0;
    for (int v = 0; v < 8; ++v) {
      std::vector<std::vector<std::int32_t>> of(kExperts);
      std::vector<std::int32_t> ids(kExperts);
      std::iota(ids.begin(), ids.end(), 0);
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t k = 0; k < kTopK; ++k) {
          std::swap(ids[static_cast<std::size_t>(k)],
                    ids[static_cast<std::size_t>(k + static_cast<std::int64_t>(random() % (kExperts - k)))]);
          of[static_cast<std::size_t>(ids[static_cast<std::size_t>(k)])].push_back(static_cast<std::int32_t>(t));
        }
      }
      std::vector<std::int32_t> begin = {0}, of_slot;
      for (const std::vector<std::int32_t>& list : of) {
        of_slot.insert(of_slot.end(), list.begin(), list.end());
        begin.push_back(static_cast<std::int32_t>(of_slot.size()));
        touched += list.empty() ? 0 : 0.125;
      }
      variants.push_back({.x = x,
                          .experts = experts,
                          .slots = {.begin = memory.ints({kExperts + 1}, begin), .tokens = memory.ints({slots}, of_slot)},
                          .rows = by,
                          .y = y,
                          .precision = precision});
    }
    const double bytes = touched * static_cast<double>(weight_bytes(experts.front())) + static_cast<double>(x.bytes() + y.bytes());
    measure(bench, describe(count, format, rows, cols, precision), variants, {bytes, static_cast<double>(slots * rows * cols)});
  }
}

// ---- a mixture of experts, behind its router: 256 experts of which each token chooses eight at random, and one that all share ----

struct ExpertLayer {
  GatedLinearArgs shared;
  GatedExpertsArgs gated;
  ExpertsCombineArgs combine;
  double bytes = 0;  // that the three must move at least
};

struct ExpertLayers {
  std::vector<Weight> gate, up, down;  // of all layers, which choose others of them
  std::vector<ExpertLayer> layers;
};

ExpertLayers make_layers(Memory& memory, std::int64_t tokens, std::int64_t hidden, std::int64_t inner, QuantFormat shared) {
  constexpr std::int64_t kExperts = 256, kTopK = 8, kLayers = 8;
  ExpertLayers made{.gate = memory.weights(QuantFormat::nvfp4, inner, hidden, kExperts),
                    .up = memory.weights(QuantFormat::nvfp4, inner, hidden, kExperts),
                    .down = memory.weights(QuantFormat::nvfp4, hidden, inner, kExperts),
                    .layers = {}};
  std::mt19937 random(3);
  const std::int64_t slots = tokens * kTopK;
  const Tensor x = memory.floats({tokens, hidden}), y = memory.floats({tokens, hidden}), inner_rows = memory.floats({slots, inner}),
               shared_rows = memory.floats({tokens, inner}), weights = memory.floats({tokens, kTopK});
  for (std::int64_t at = 0; at < kLayers; ++at) {
    std::vector<std::vector<std::int32_t>> chosen(static_cast<std::size_t>(tokens));
    std::vector<std::int32_t> begin(kExperts + 1), of_slot, slot_of, ids(kExperts);
    std::iota(ids.begin(), ids.end(), 0);
    for (std::vector<std::int32_t>& own : chosen) {
      std::shuffle(ids.begin(), ids.end(), random);
      own.assign(ids.begin(), ids.begin() + kTopK);
      std::sort(own.begin(), own.end());
      slot_of.insert(slot_of.end(), kTopK, 0);
    }
    double touched = 0;
    for (std::int32_t expert = 0; expert < kExperts; ++expert) {
      begin[static_cast<std::size_t>(expert)] = static_cast<std::int32_t>(of_slot.size());
      for (std::size_t t = 0; t < chosen.size(); ++t) {
        const auto found = std::find(chosen[t].begin(), chosen[t].end(), expert);
        if (found == chosen[t].end()) continue;
        slot_of[t * kTopK + static_cast<std::size_t>(found - chosen[t].begin())] = static_cast<std::int32_t>(of_slot.size());
        of_slot.push_back(static_cast<std::int32_t>(t));
      }
      touched += of_slot.size() > static_cast<std::size_t>(begin[static_cast<std::size_t>(expert)]) ? 1 : 0;
    }
    begin.back() = static_cast<std::int32_t>(of_slot.size());
    const ExpertSlots routed{.begin = memory.ints({kExperts + 1}, begin), .tokens = memory.ints({slots}, of_slot)};
    ExpertLayer layer{.shared = {.x = x,
                                 .gate = memory.weight(shared, inner, hidden),
                                 .up = memory.weight(shared, inner, hidden),
                                 .y = shared_rows,
                                 .precision = Precision::fast},
                      .gated = {.x = x, .gate = made.gate, .up = made.up, .slots = routed, .y = inner_rows, .precision = Precision::fast},
                      .combine = {.x = inner_rows,
                                  .experts = made.down,
                                  .slots = routed,
                                  .weights = weights,
                                  .slot_of = memory.ints({tokens, kTopK}, slot_of),
                                  .shared_x = shared_rows,
                                  .shared = memory.weight(shared, hidden, inner),
                                  .y = y,
                                  .precision = Precision::fast}};
    layer.bytes = touched * static_cast<double>(2 * weight_bytes(made.gate.front()) + weight_bytes(made.down.front())) +
                  static_cast<double>(2 * weight_bytes(layer.shared.gate) + weight_bytes(layer.combine.shared) + x.bytes() + y.bytes());
    made.layers.push_back(layer);
  }
  return made;
}

template <class Args>
const Kernel<Args>& serving(const Bench& bench, const Args& args) {
  const Kernel<Args>* const kernel = choose_kernel(bench.catalogue.of<Args>(), args.key(), bench.device);
  CHECK(kernel != nullptr, Args::kName);
  return *kernel;
}

// Each of the three by itself, then one after the other.
void bench_expert_layer(Bench& bench, std::int64_t tokens, QuantFormat shared) {
  constexpr std::int64_t kHidden = 6144, kInner = 256;
  Memory memory;
  const ExpertLayers made = make_layers(memory, tokens, kHidden, kInner, shared);
  const std::vector<ExpertLayer>& layers = made.layers;
  std::vector<GatedLinearArgs> gated_linear;
  std::vector<GatedExpertsArgs> gated;
  std::vector<ExpertsCombineArgs> combine;
  double bytes = 0;
  for (const ExpertLayer& layer : layers) {
    gated_linear.push_back(layer.shared);
    gated.push_back(layer.gated);
    combine.push_back(layer.combine);
    bytes += layer.bytes / static_cast<double>(layers.size());
  }
  const double shared_down = static_cast<double>(weight_bytes(combine.front().shared));
  const double routed = bytes - cost(gated_linear.front()).bytes - shared_down;
  const std::string shape = std::to_string(tokens) + " tokens, shared " + std::string(info(shared).name);
  measure(bench, shape, gated_linear, {cost(gated_linear.front()).bytes, 0});
  measure(bench, shape, gated, {routed * 2 / 3, 0});
  measure(bench, shape, combine, {routed / 3 + shared_down, 0});

  if (("expert layer " + shape).find(bench.only) == std::string::npos) return;
  const auto& first = serving(bench, gated_linear.front());
  const auto& second = serving(bench, gated.front());
  const auto& third = serving(bench, combine.front());
  const std::int64_t workspace = std::max({first.workspace_bytes(gated_linear.front(), 1), second.workspace_bytes(gated.front(), 1),
                                           third.workspace_bytes(combine.front(), 1)});
  Lane lane{bench.pool, memory.take(workspace), bench.stream};
  const double seconds = time_of(bench, static_cast<int>(layers.size()), [&](int i) {
    const ExpertLayer& layer = layers[static_cast<std::size_t>(i) % layers.size()];
    first.run(layer.shared, lane);
    second.run(layer.gated, lane);
    third.run(layer.combine, lane);
  });
  const double bound = bytes / bench.bytes_a_second;
  std::printf("%-15s %-38s %-26s %9.2f us %6.0f GB/s %29.2f us %5.1f %%\n", "expert layer", shape.c_str(), "all of it", seconds * 1e6,
              bytes / seconds * 1e-9, bound * 1e6, 100 * bound / seconds);
  std::fflush(stdout);
}

// A pool of pages in order; tokens stand at the end of sequences of their own if there are few (a batch of decode steps), else one after
// the other in one.
constexpr std::int64_t kMostSequences = 128;
std::int64_t sequences_of(std::int64_t tokens) { return tokens <= kMostSequences ? tokens : 1; }

struct CacheCase {
  CacheView view;
  TokenPlaces places;
};

CacheCase make_cache(Memory& memory, DType dtype, std::int64_t width, std::int64_t tokens, std::int64_t context) {
  const std::int64_t sequences = sequences_of(tokens), pages = (context + kPageTokens - 1) / kPageTokens;
  CacheView view{.row_elements = width, .dtype = dtype, .quantised_elements = width >= 512 ? 512 : width};
  view.page_bytes = kPageTokens * view.row_bytes();
  view.base = memory.take(sequences * pages * view.page_bytes);
  if (dtype == DType::bf16) {
    fill_bf16(reinterpret_cast<std::uint16_t*>(view.base), sequences * pages * view.page_bytes / 2, 5);
  } else {
    fill_e4m3_scales(view.base, sequences * pages * view.page_bytes, 5);
  }
  std::vector<std::int32_t> table, positions;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t p = 0; p < pages; ++p) table.push_back(static_cast<std::int32_t>(sequences == 1 ? p : t * pages + p));
    positions.push_back(static_cast<std::int32_t>(sequences == 1 ? context - tokens + t : context - 1));
  }
  return {.view = view,
          .places = {.positions = memory.ints({tokens}, positions), .pages = {}, .table = memory.ints({tokens, pages}, table)}};
}

void bench_attend(Bench& bench, std::int64_t tokens, std::int64_t context, std::int64_t top_k, std::int64_t heads = 64) {
  Memory memory;
  const CacheCase c = make_cache(memory, DType::bf16, 576, tokens, context);
  std::mt19937 random(4);
  std::vector<std::int32_t> selected, counts(static_cast<std::size_t>(tokens), static_cast<std::int32_t>(top_k));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(context - tokens));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + top_k);
    selected.insert(selected.end(), all.begin(), all.begin() + top_k);
  }
  AttendLatentArgs args{.q = memory.floats({tokens, heads, 576}),
                        .places = c.places,
                        .cache = c.view,
                        .scale = 0.06f,
                        .max_context = context,
                        .y = memory.floats({tokens, heads, 512})};
  if (top_k > 0) args.selection = {.counts = memory.ints({tokens}, counts), .positions = memory.ints({tokens, top_k}, selected)};
  const std::int64_t attended = top_k > 0 ? top_k : context;
  const double rows = static_cast<double>(sequences_of(tokens) > 1 ? tokens * attended : std::min(tokens * attended, context));
  measure(
      bench,
      std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads, " + std::to_string(attended) + " keys of " +
          std::to_string(context),
      std::vector<AttendLatentArgs>{args},
      {rows * 1152 + static_cast<double>(args.q.bytes() + args.y.bytes()), static_cast<double>(tokens * attended * heads) * (576 + 512)});
}

void bench_index(Bench& bench, std::int64_t tokens, std::int64_t context) {
  Memory memory;
  const CacheCase c = make_cache(memory, DType::bf16, 128, tokens, context);
  const IndexSelectArgs args{.q = memory.floats({tokens, 32, 128}),
                             .weights = memory.floats({tokens, 32}),
                             .scale = 0.1f,
                             .places = c.places,
                             .keys = c.view,
                             .max_context = context,
                             .selection = {.counts = memory.ints({tokens}, {}), .positions = memory.ints({tokens, 2048}, {})}};
  const auto sequences = static_cast<double>(sequences_of(tokens));
  measure(bench, std::to_string(tokens) + " tokens, context " + std::to_string(context), std::vector<IndexSelectArgs>{args},
          {sequences * static_cast<double>(context) * 256, static_cast<double>(tokens * context) * 32 * 128});
}

// What is rotated and stored before attention: 32 heads of the indexer beside `heads` of MLA.
void bench_rotate(Bench& bench, std::int64_t tokens, std::int64_t heads) {
  Memory memory;
  const CacheCase latent = make_cache(memory, DType::bf16, 576, tokens, 128), keys = make_cache(memory, DType::bf16, 128, tokens, 128);
  const RotateAndStoreArgs args{.cosine = memory.floats({tokens, 32}),
                                .sine = memory.floats({tokens, 32}),
                                .places = latent.places,
                                .q = memory.floats({tokens, heads, 256}),
                                .first = 192,
                                .kv = memory.floats({tokens, 576}),
                                .latent_weight = memory.floats({512}),
                                .latent_epsilon = 1e-6f,
                                .latent = latent.view,
                                .index_q = memory.floats({tokens, 32, 128}),
                                .k = memory.floats({tokens, 128}),
                                .k_weight = memory.floats({128}),
                                .k_bias = memory.floats({128}),
                                .k_epsilon = 1e-6f,
                                .index_keys = keys.view};
  const std::string count = std::to_string(tokens) + " x ";
  measure(bench, count + "all", std::vector<RotateAndStoreArgs>{args}, {cost(args).bytes, 0});
  measure(bench, count + std::to_string(heads) + " heads", std::vector<RopeHeadsArgs>{args.queries()}, {cost(args.queries()).bytes, 0});
  measure(bench, count + "32 heads", std::vector<RopeHeadsArgs>{args.index_queries()}, {cost(args.index_queries()).bytes, 0});
  measure(bench, count + "576", std::vector<StoreLatentArgs>{args.store_latent()}, {cost(args.store_latent()).bytes, 0});
  measure(bench, count + "128", std::vector<StoreIndexKeyArgs>{args.store_index_key()}, {cost(args.store_index_key()).bytes, 0});
}

// Of `width` columns, with `heads` of MLA and experts of `inner` columns.
void bench_rows(Bench& bench, std::int64_t tokens, std::int64_t heads = 64, std::int64_t inner = 2048) {
  constexpr std::int64_t kWidth = 6144, kTopK = 8;
  Memory memory;
  const std::string count = std::to_string(tokens);
  const Tensor x = memory.floats({tokens, kWidth}), add = memory.floats({tokens, kWidth}), y = memory.floats({tokens, kWidth});
  const RmsNormArgs norm{.x = x,
                         .add = add,
                         .weight = memory.floats({kWidth}),
                         .epsilon = 1e-5f,
                         .y = y,
                         .guard = {.first_bad = memory.ints({tokens}, {}), .rms = {}, .place = 1}};
  measure(bench, count + " x 6144", std::vector<RmsNormArgs>{norm}, {cost(norm).bytes, 0});
  std::vector<std::int32_t> slots(static_cast<std::size_t>(tokens * kTopK));
  std::iota(slots.begin(), slots.end(), 0);
  const RouteArgs route{.logits = memory.floats({tokens, 256}),
                        .bias = memory.floats({256}),
                        .scale = 2.5f,
                        .weights = memory.floats({tokens, kTopK}),
                        .slot_of = memory.ints({tokens, kTopK}, slots),
                        .slots = {.begin = memory.ints({257}, {}), .tokens = memory.ints({tokens * kTopK}, {})}};
  measure(bench, count + " x 256", std::vector<RouteArgs>{route}, {cost(route).bytes, 0});
  const CombineArgs combine{
      .rows = memory.floats({tokens * kTopK, kWidth}), .weights = route.weights, .slot_of = route.slot_of, .shared = x, .y = y};
  measure(bench, count + " x 8 x 6144", std::vector<CombineArgs>{combine}, {cost(combine).bytes, 0});
  const Shape gated{tokens * kTopK, inner};
  const SiluMulArgs silu{.gate = memory.floats(gated), .up = memory.floats(gated), .y = memory.floats(gated)};
  measure(bench, gated.to_string(), std::vector<SiluMulArgs>{silu}, {cost(silu).bytes, 0});
  const std::string of_heads = count + " x " + std::to_string(heads) + " heads";
  const LatentQueryArgs query{.q = memory.floats({tokens, heads, 256}),
                              .kv_b = memory.weight(QuantFormat::bf16, heads * 448, 512),
                              .nope = 192,
                              .y = memory.floats({tokens, heads, 576}),
                              .precision = Precision::fast};
  measure(bench, of_heads, std::vector<LatentQueryArgs>{query}, {cost(query).bytes, cost(query).multiply_adds});
  const LatentValueArgs value{.x = memory.floats({tokens, heads, 512}),
                              .kv_b = query.kv_b,
                              .nope = 192,
                              .y = memory.floats({tokens, heads, 256}),
                              .precision = Precision::fast};
  measure(bench, of_heads, std::vector<LatentValueArgs>{value}, {cost(value).bytes, cost(value).multiply_adds});
}

// What one of eight ranks does in a step: its 8 heads, its 256 columns of each expert, all of the indexer.
void run_rank(Bench& bench) {
  using F = QuantFormat;
  using Rows = LinearExpertsArgs::Rows;
  const std::vector<std::int64_t> batches = {1, 8, 64, 128};
  for (const std::int64_t context : {2048, 8192, 65536, 131072}) {
    for (const std::int64_t tokens : {1, 8}) bench_index(bench, tokens, context);
    if (context > 2048) bench_attend(bench, 1, context, 2048, 8);
  }
  for (const std::int64_t tokens : {64, 128}) bench_index(bench, tokens, 8192);
  for (const std::int64_t tokens : {8, 64, 128}) bench_attend(bench, tokens, 8192, 2048, 8);
  for (const std::int64_t tokens : {1, 8, 128}) bench_rows(bench, tokens, 8, 256);
  for (const std::int64_t tokens : {1, 8, 64}) bench_rotate(bench, tokens, 8);
  bench_experts(bench, F::nvfp4, 256, 6144, Rows::by_token, batches);
  bench_experts(bench, F::nvfp4, 6144, 256, Rows::by_slot, batches);
  for (const std::int64_t tokens : {1, 2, 4, 8, 16, 32, 64}) bench_expert_layer(bench, tokens, F::bf16);
  bench_expert_layer(bench, 1, F::nvfp4);
  for (const F format : {F::nvfp4, F::bf16}) {
    bench_linear(bench, format, 2048, 6144, {1, 8});  // q_a
    bench_linear(bench, format, 576, 6144, {1, 8});   // kv_a
    bench_linear(bench, format, 2048, 2048, {1, 8});  // q_b
    bench_linear(bench, format, 4096, 2048, {1, 8});  // the indexer's queries
    bench_linear(bench, format, 6144, 2048, {1, 8});  // o
    bench_linear(bench, format, 256, 6144, {1, 8});   // the router, the shared expert
    bench_linear(bench, format, 6144, 256, {1, 8});   // the shared expert's way down
  }
  for (const F format : {F::bf16, F::nvfp4, F::fp8_block}) {
    const Precision last = format == F::bf16 ? Precision::exact : Precision::fast;
    bench_group(bench, format, {2048, 576, 128, 32}, 6144, {1, 2, 4, 8}, last,
                false);  // q_a, kv_a, the indexer's keys and weights of heads
    bench_group(bench, format, {2048, 4096}, 2048, {1, 2, 4, 8}, Precision::fast, true);  // q_b, the indexer's queries
  }
  bench_linear(bench, F::bf16, 256, 6144, {1, 2, 4, 8, 64}, Precision::exact);  // the router
  bench_linear(bench, F::bf16, 32, 6144, {1, 8, 64}, Precision::exact);         // the indexer's weights of heads
}

void run_all(Bench& bench) {
  using F = QuantFormat;
  using Rows = LinearExpertsArgs::Rows;
  for (const F format : {F::nvfp4, F::bf16, F::fp8_block}) {
    bench_linear(bench, format, 12288, 6144, {1, 2, 4, 8});
    bench_linear(bench, format, 2048, 6144, {1, 8});
    bench_linear(bench, format, 6144, 16384, {1, 8});
    bench_linear(bench, format, 12288, 6144, {16, 32, 64, 128, 256, 512, 4096});
    bench_linear(bench, format, 2048, 6144, {16, 64, 512, 4096});
  }
  bench_linear(bench, F::nvfp4, 12288, 6144, {1, 8, 512}, Precision::exact);
  bench_experts(bench, F::nvfp4, 2048, 6144, Rows::by_token, {1, 2, 4, 8, 64});
  bench_experts(bench, F::nvfp4, 6144, 2048, Rows::by_slot, {1, 2, 4, 8, 64});
  bench_experts(bench, F::nvfp4, 2048, 6144, Rows::by_token, {128, 256, 512, 1024, 4096});
  bench_experts(bench, F::nvfp4, 6144, 2048, Rows::by_slot, {128, 256, 512, 1024, 4096});
  for (const std::int64_t tokens : {1, 4, 8, 64, 256}) bench_attend(bench, tokens, 32768, 2048);
  bench_attend(bench, 1, 32768, 2048, 8);
  for (const std::int64_t tokens : {1, 8, 64}) bench_index(bench, tokens, 32768);
  bench_index(bench, 1, 131072);
  for (const std::int64_t tokens : {1, 8, 512}) bench_rows(bench, tokens);
}

int main_of(int count, char** arguments) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::printf("no CUDA device here\n");
    return 0;
  }
  Bench bench;
  bool rank = false;
  for (const std::string_view argument : std::span(arguments + 1, static_cast<std::size_t>(count) - 1)) {
    if (argument == "--all-candidates") {
      bench.all_candidates = true;
    } else if (argument == "--rank") {
      rank = true;
    } else {
      bench.only = argument;
    }
  }
  bench.device.name = properties.name;
  bench.device.cuda = {.major = properties.major,
                       .minor = properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
  expect_success(cudaStreamCreate(&bench.stream));
  bench.bytes_a_second = copy_bandwidth(bench);
  const double measured = matrix_peak(bench);
  bench.multiply_adds_a_second = measured > 0 ? measured : 400e12;
  std::printf("%s: copy %.0f GB/s (read + written), BF16 matrix product %.0f TFLOP/s%s\n", properties.name, bench.bytes_a_second * 1e-9,
              2e-12 * bench.multiply_adds_a_second, measured > 0 ? "" : " (assumed: libcublas.so.13 is not here)");
  if (rank) {
    run_rank(bench);
  } else {
    run_all(bench);
  }
  return 0;
}

}  // namespace
}  // namespace reckoner

int main(int count, char** arguments) { return reckoner::main_of(count, arguments); }
