// reckoner-bench: decode and prefill of a slice of GLM-5, whole and op by op, and a linear layer in each weight format; each figure beside
// what this machine can do at most, measured in the same run.
//
// Counters: GB/s and bandwidth_share (of the read bandwidth), GFLOPS and peak_share (of the multiply-add peak: BF16 in `fast` where the
// processor has it, else float), tokens/s.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <optional>

#include "kernels/cpu/catalogue.h"
#include "kernels/cpu/machine/machine.h"
#include "matrix.h"
#include "quant/format.h"
#include "slice.h"

namespace reckoner {
namespace {

struct Bench {
  DeviceInfo device = detect_cpu();
  ThreadPool pool{usable_cores()};
  double bandwidth = measure_read_bandwidth(pool);
  MultiplyAddPeaks peaks = measure_multiply_adds(pool, device);
  std::optional<Slice> slice;  // of the precision that runs; one at a time, for memory
  Precision precision = Precision::fast;

  static constexpr std::int64_t kMaxContext = 33 * 1024;

  Slice& use(Precision wanted) {
    if (!slice || precision != wanted) {
      slice.reset();
      slice.emplace(pool, cpu_catalogue(), device, wanted, kMaxContext);
      precision = wanted;
    }
    return *slice;
  }
  double peak() const { return precision == Precision::fast && peaks.bf16 > 0 ? peaks.bf16 : peaks.f32; }
};

void report(benchmark::State& state, const Bench& bench, const Cost& cost, std::int64_t tokens, double bandwidth) {
  using benchmark::Counter;
  const auto rate = [](double amount) { return Counter(amount, Counter::kIsIterationInvariantRate); };
  state.counters["tokens/s"] = rate(static_cast<double>(tokens));
  state.counters["GB/s"] = rate(cost.bytes / 1e9);
  state.counters["bandwidth_share"] = rate(cost.bytes / bandwidth);
  state.counters["GFLOPS"] = rate(2 * cost.multiply_adds / 1e9);
  state.counters["peak_share"] = rate(cost.multiply_adds / bench.peak());
}

void step(benchmark::State& state, Bench& bench, Precision precision, std::int64_t tokens, std::int64_t context) {
  Slice& slice = bench.use(precision);
  slice.run(tokens, context);
  // Neighbours on a shared machine come and go: the yardstick is read beside each measurement.
  const double before = measure_read_bandwidth(bench.pool);
  for (auto _ : state) slice.run(tokens, context);
  report(state, bench, slice.cost(tokens, context), tokens, std::max(before, measure_read_bandwidth(bench.pool)));
}

// Adds up what the calls of one op take.
struct Stopwatch : Probe {
  explicit Stopwatch(std::string_view op_) : op(op_) {}
  void after(const OpRun& run, std::chrono::nanoseconds time) override { took += run.op == op ? time : std::chrono::nanoseconds{}; }
  std::string_view op;
  std::chrono::nanoseconds took{};
};

void one_op(benchmark::State& state, Bench& bench, std::string_view op, Precision precision, std::int64_t tokens, std::int64_t context) {
  Slice& slice = bench.use(precision);
  slice.run(tokens, context);
  Stopwatch watch(op);
  slice.runner().ops().probe = &watch;
  for (auto _ : state) {
    watch.took = {};
    slice.run(tokens, context);
    state.SetIterationTime(std::chrono::duration<double>(watch.took).count());
  }
  slice.runner().ops().probe = nullptr;
  Cost cost;
  for (const Ops::Call& call : slice.calls(tokens, context)) {
    if (call.op == op) cost += call.cost;
  }
  report(state, bench, cost, tokens, bench.bandwidth);
}

void linear_layer(benchmark::State& state, Bench& bench, QuantFormat format, Precision precision, std::int64_t tokens) {
  bench.slice.reset();  // for memory
  bench.precision = precision;
  MatrixBench layer(bench.pool, bench.device, cpu_catalogue(), format, precision, tokens);
  layer.run();
  const double before = measure_read_bandwidth(bench.pool);
  for (auto _ : state) layer.run();
  report(state, bench, layer.cost(), tokens, std::max(before, measure_read_bandwidth(bench.pool)));
  state.SetLabel(std::string(layer.kernel()));
}

std::string_view name(Precision precision) { return precision == Precision::exact ? "exact" : "fast"; }

void add_formats(Bench& bench) {
  for (const Precision precision : {Precision::fast, Precision::exact}) {
    for (const FormatInfo& format : formats()) {
      for (const std::int64_t tokens : {1, 256}) {
        benchmark::RegisterBenchmark(
            fmt::format("linear/{}/{}/tokens:{}", format.name, name(precision), tokens).c_str(),
            [&bench, &format, precision, tokens](benchmark::State& state) { linear_layer(state, bench, format.format, precision, tokens); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond)
            ->Iterations(tokens == 1 ? 10 : 1);
      }
    }
  }
}

void add_benchmarks(Bench& bench) {
  using benchmark::RegisterBenchmark;
  for (const Precision precision : {Precision::fast, Precision::exact}) {
    for (const std::int64_t context : {1, 2048, 4096, 8192, 16384, 32768}) {
      RegisterBenchmark(fmt::format("slice/decode/{}/context:{}", name(precision), context).c_str(),
                        [&bench, precision, context](benchmark::State& state) { step(state, bench, precision, 1, context); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    for (const std::int64_t context : {512, 4096}) {
      RegisterBenchmark(fmt::format("slice/prefill512/{}/context:{}", name(precision), context).c_str(),
                        [&bench, precision, context](benchmark::State& state) { step(state, bench, precision, 512, context); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    for (const std::int64_t tokens : {1, 512}) {
      for (const std::string_view op : {"linear", "linear_experts", "latent_query", "latent_value", "index_select", "attend_latent",
                                        "rms_norm", "rope_heads", "store_latent", "store_index_key", "silu_mul", "route", "combine"}) {
        RegisterBenchmark(fmt::format("op/{}/{}/tokens:{}/context:4096", op, name(precision), tokens).c_str(),
                          [&bench, op, precision, tokens](benchmark::State& state) { one_op(state, bench, op, precision, tokens, 4096); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(tokens == 1 ? 20 : 3);
      }
    }
  }
}

// Resident memory of this process, MB.
double resident_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

}  // namespace
}  // namespace reckoner

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  reckoner::Bench bench;
  benchmark::AddCustomContext("processor", bench.device.name);
  benchmark::AddCustomContext("threads", fmt::format("{}", bench.pool.threads()));
  benchmark::AddCustomContext("read bandwidth", fmt::format("{:.1f} GB/s", bench.bandwidth / 1e9));
  benchmark::AddCustomContext(
      "multiply-add peak", fmt::format("{:.0f} GFLOPS float, {:.0f} GFLOPS BF16", 2 * bench.peaks.f32 / 1e9, 2 * bench.peaks.bf16 / 1e9));
  reckoner::add_benchmarks(bench);
  reckoner::add_formats(bench);
  benchmark::RunSpecifiedBenchmarks();
  if (bench.slice) {
    fmt::print("resident: {:.0f} MB = weights {:.0f} + cache {:.0f} + rest {:.0f} MB\n", reckoner::resident_mb(),
               static_cast<double>(bench.slice->weight_bytes()) / (1 << 20), static_cast<double>(bench.slice->cache_bytes()) / (1 << 20),
               reckoner::resident_mb() - static_cast<double>(bench.slice->weight_bytes() + bench.slice->cache_bytes()) / (1 << 20));
  }
  return 0;
}
