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

#include "bench.h"
#include "expert_layer.h"

namespace reckoner {
namespace {

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
  for (const std::int64_t tokens : {16, 32, 64, 128}) bench_index(bench, tokens, 8192);
  for (const std::int64_t tokens : {16, 64}) bench_index(bench, tokens, 131072);
  for (const std::int64_t tokens : {8, 16, 32, 64, 128}) bench_attend(bench, tokens, 8192, 2048, 8);
  for (const std::int64_t tokens : {1, 8, 16, 32, 128}) bench_rows(bench, tokens, 8, 256);
  for (const std::int64_t tokens : {1, 8, 64}) bench_rotate(bench, tokens, 8);
  bench_experts(bench, F::nvfp4, 256, 6144, Rows::by_token, batches);
  bench_experts(bench, F::nvfp4, 6144, 256, Rows::by_slot, batches);
  for (const std::int64_t tokens : {1, 2, 4, 8, 16, 32, 64}) bench_expert_layer(bench, tokens, F::bf16);
  bench_expert_layer(bench, 1, F::nvfp4);
  for (const F format : {F::nvfp4, F::bf16}) {
    bench_linear(bench, format, 2048, 6144, {1, 8, 16, 32});  // q_a
    bench_linear(bench, format, 576, 6144, {1, 8, 16, 32});   // kv_a
    bench_linear(bench, format, 2048, 2048, {1, 8, 16, 32});  // q_b
    bench_linear(bench, format, 4096, 2048, {1, 8, 16, 32});  // the indexer's queries
    bench_linear(bench, format, 6144, 2048, {1, 8, 16, 32});  // o
    bench_linear(bench, format, 256, 6144, {1, 8, 16, 32});   // the router, the shared expert
    bench_linear(bench, format, 6144, 256, {1, 8, 16, 32});   // the shared expert's way down
  }
  for (const F format : {F::bf16, F::nvfp4, F::fp8_block}) {
    const Precision last = format == F::bf16 ? Precision::exact : Precision::fast;
    bench_group(bench, format, {2048, 576, 128, 32}, 6144, {1, 2, 4, 8}, last,
                false);  // q_a, kv_a, the indexer's keys and weights of heads
    bench_group(bench, format, {2048, 4096}, 2048, {1, 2, 4, 8}, Precision::fast, true);  // q_b, the indexer's queries
  }
  bench_linear(bench, F::bf16, 256, 6144, {1, 2, 4, 8, 16, 32, 64}, Precision::exact);  // the router
  bench_linear(bench, F::bf16, 32, 6144, {1, 8, 16, 32, 64}, Precision::exact);         // the indexer's weights of heads
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
