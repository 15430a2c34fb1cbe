// Decode steps of one rank's share of GLM-5 when eight share it: 8 of 64 heads, an eighth of every expert's columns, of the dense layers
// and of the vocabulary, all 78 layers, experts in NVFP4 and the rest in BF16: 57 GB of random weights, made on the device. What ranks
// would tell each other is left out. Times are of whole steps as the engine runs them: batch copied in, a recorded step, logits copied
// back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "fill.h"
#include "kernels/cuda/backend.h"
#include "kernels/device/backend_memory.h"
#include "model/forward.h"

extern "C" const reckoner::DeviceBackend* reckoner_cuda_backend();

namespace reckoner {
namespace {

constexpr std::string_view kConfig = R"({{
  "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 1536,
  "num_hidden_layers": {layers}, "first_k_dense_replace": {dense}, "num_attention_heads": 8, "num_key_value_heads": 8,
  "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
  "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
  "n_shared_experts": 1, "moe_intermediate_size": 256, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "rms_norm_eps": 1e-5, "vocab_size": 19360,
  "max_position_embeddings": 202752, "rope_parameters": {{"rope_theta": 1000000, "rope_type": "default"}}, "eos_token_id": 0
}})";

template <class T>
T value_or_end(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "cuda_step_bench: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

void expect(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cuda_step_bench: %s\n", status.error().message().c_str());
  std::exit(1);
}

// Random weights on the device, in a model that has no checkpoint.
class MadeUpModel {
 public:
  MadeUpModel(std::int64_t layers, DeviceMemory& memory) : memory_(memory) {
    const std::string text =
        fmt::format(fmt::runtime(kConfig), fmt::arg("layers", layers), fmt::arg("dense", std::min<std::int64_t>(3, layers - 1)));
    model.config = value_or_end(parse_model_config(value_or_end(parse_json(text, "made-up config")).root(), std::nullopt));
    model.family = value_or_end(find_family(model.config));
    weights.layers.resize(static_cast<std::size_t>(layers));
    for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
      if (model.config.mlp_kinds[layer] != MlpKind::sparse) continue;
      MoeWeights& moe = weights.layers[layer].moe;
      for (std::vector<Weight>* list : {&moe.gate, &moe.up, &moe.down})
        list->resize(static_cast<std::size_t>(model.config.n_routed_experts));
    }
    for_each_rule(*model.family, model.config,
                  [&](const WeightRule& rule) { for_each_place(rule, model.config, [&](WeightPlace place) { make(rule, place); }); });
    model.weights.layers = weights.layers;  // what plans look at: shapes and formats
    model.weights.embed = weights.embed;
    model.weights.lm_head = weights.lm_head;
  }

  Model model;
  ModelWeights weights;
  std::int64_t bytes = 0;

 private:
  // Experts of one matrix of a layer lie one behind the other, data and scales in turn, as the uploader puts them.
  void make(const WeightRule& rule, WeightPlace place) {
    const Shape shape = rule.shape(model.config);
    if (rule.matrix == nullptr) {
      Tensor& vector = rule.vector(weights, place);
      vector = {.data = take(shape.elements() * 4), .dtype = DType::f32, .shape = shape};
      return fill_floats(vector.f32(), shape.elements(), ++seed_);
    }
    Weight& weight = rule.matrix(weights, place);
    weight.rows = shape[0];
    weight.cols = shape[1];
    if (rule.repeat != Repeat::expert) {
      weight.format = QuantFormat::bf16;
      weight.data = take(shape.elements() * 2);
      return fill_bf16(reinterpret_cast<std::uint16_t*>(const_cast<std::byte*>(weight.data)), shape.elements(), ++seed_);
    }
    weight.format = QuantFormat::nvfp4;
    weight.scale = 0.005f;
    const std::int64_t data_bytes = shape.elements() / 2;
    const std::int64_t scale_bytes = shape.elements() / 16;
    std::byte* const matrices = experts_of(rule, place, data_bytes + scale_bytes);
    weight.data = matrices;
    weight.scales = matrices + data_bytes;
    fill_random_bytes(matrices, data_bytes, ++seed_);
    fill_e4m3_scales(matrices + data_bytes, scale_bytes, ++seed_);
  }

  std::byte* experts_of(const WeightRule& rule, WeightPlace place, std::int64_t size) {
    CHECK(size % 256 == 0);
    if (place.expert == 0) experts_[rule.name] = take(size * model.config.n_routed_experts);
    return experts_[rule.name] + static_cast<std::int64_t>(place.expert) * size;
  }

  std::byte* take(std::int64_t size) {
    bytes += size;
    weights.owners.emplace_back(size, &memory_);
    expect(memory_.status());
    return weights.owners.back().data();
  }

  DeviceMemory& memory_;
  std::uint32_t seed_ = 0;
  std::map<std::string_view, std::byte*> experts_;
};

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

double copy_gb_a_second(DeviceMemory& memory) {
  const std::int64_t size = std::int64_t{2} << 30;
  Buffer from(size, &memory), to(size, &memory);
  const Stream stream = memory.make_stream();
  std::vector<double> took;
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    for (int copy = 0; copy < 4; ++copy) copy_bytes(to.data(), from.data(), size, stream);
    memory.synchronise(stream);
    took.push_back(milliseconds_since(start) / 4);
  }
  memory.release_stream(stream);
  expect(memory.status());
  std::sort(took.begin(), took.end());
  return 2 * static_cast<double>(size) / took[3] / 1e6;
}

// Milliseconds by op, of linear layers by shape too.
struct OpTimes final : Probe {
  std::map<std::string, double> sums;
  void after(const OpRun& run, std::chrono::nanoseconds took) override {
    std::string name(run.op);
    if (const auto* const linear = std::get_if<const LinearArgs*>(&run.args))
      name += fmt::format("[{}, {}]", (*linear)->w.rows, (*linear)->w.cols);
    sums[name] += static_cast<double>(took.count()) / 1e6;
  }
};

// One context length: a cache that holds it, and steps of any number of rows at its end. All rows read the same pages, which costs a GPU
// what pages of their own would as long as they do not fit its cache.
class Steps {
 public:
  Steps(const MadeUpModel& made_up, const Device& device, ThreadPool& pool, std::int64_t context, std::int64_t max_rows)
      : context_(context),
        runner_(made_up.model, made_up.weights, device, pool, Precision::fast,
                {.max_tokens = max_rows, .max_samples = max_rows, .max_context = context}),
        cache_(runner_.cache_layout(), KvPool::pages_for(context), device.memory) {
    expect(runner_.status());
    expect(device.memory->status());
    for (std::int64_t page = 0; page < cache_.pages(); ++page) {
      fill_bf16(reinterpret_cast<std::uint16_t*>(cache_.layout().latent.front().base + page * cache_.layout().page_bytes),
                cache_.layout().page_bytes / 2, static_cast<std::uint32_t>(page));
    }
    wait_until_filled();
    pages_ = *cache_.allocate(cache_.pages());
    runner_.use_cache(cache_.layout());
  }

  // Median milliseconds of a step of `rows` rows.
  double time(std::int64_t rows) {
    constexpr int kWarm = 3, kTimed = 15;
    std::vector<double> took;
    for (int i = 0; i < kWarm + kTimed; ++i) {
      const auto start = Clock::now();
      run(rows, i);
      if (i >= kWarm) took.push_back(milliseconds_since(start));
    }
    std::sort(took.begin(), took.end());
    return took[kTimed / 2];
  }

  Cost cost(std::int64_t rows) {
    Cost total;
    for (const Ops::Call& call : runner_.plan(rows, context_)) total += call.cost;
    return total;
  }

  // Milliseconds by op of one step that waits after each: what it costs to launch is in every one.
  std::vector<std::pair<std::string, double>> by_op(std::int64_t rows) {
    OpTimes times;
    runner_.ops().probe = &times;
    run(rows, 0);
    runner_.ops().probe = nullptr;
    std::vector<std::pair<std::string, double>> sorted(times.sums.begin(), times.sums.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return sorted;
  }
  const std::string& recording_failure() const { return runner_.recording_failure(); }
  std::int64_t recorded() const { return runner_.recorded_steps(); }

 private:
  void run(std::int64_t rows, int token) {
    builder_.clear();
    for (std::int64_t row = 0; row < rows; ++row)
      builder_.add(static_cast<std::int32_t>((token * 131 + row * 17) % 19360), context_ - 1, pages_, Sample::yes);
    const StepOutput output = runner_.run(builder_.batch());
    if (!output.error.empty()) expect(Error{output.error});
  }

  const std::int64_t context_;
  StepRunner runner_;
  KvPool cache_;
  std::vector<std::int32_t> pages_;
  BatchBuilder builder_;
};

void measure(const MadeUpModel& made_up, const Device& device, ThreadPool& pool, std::int64_t context, double copy_gbs,
             std::int64_t max_rows) {
  Steps steps(made_up, device, pool, context, max_rows);
  for (std::int64_t rows = 1; rows <= max_rows; rows *= 2) {
    const double took = steps.time(rows);
    const double bound = steps.cost(rows).bytes / copy_gbs / 1e6;
    std::printf("| %ld | %ld | %.2f | %.2f | %.0f %% | %.0f |\n", context, rows, took, bound, 100 * bound / took, 1000.0 * rows / took);
    std::fflush(stdout);
  }
  if (steps.recorded() == 0) std::printf("not recorded: %s\n", steps.recording_failure().c_str());
  std::printf("ms by op, 1 row, context %ld, each waited for:", context);
  for (const auto& [op, took] : steps.by_op(1)) std::printf(" %s %.2f", op.c_str(), took);
  std::printf("\n\n");
}

int run(std::int64_t layers, std::int64_t max_rows) {
  const DeviceBackend& backend = *reckoner_cuda_backend();
  const std::vector<DeviceInfo> devices = value_or_end(backend.devices());
  if (devices.empty()) {
    std::fprintf(stderr, "cuda_step_bench: no GPU here\n");
    return 1;
  }
  BackendMemory memory(backend, 0, devices.front());
  const double copy_gbs = copy_gb_a_second(memory);
  const auto start = Clock::now();
  const MadeUpModel made_up(layers, memory);
  wait_until_filled();
  std::printf("%s; copying: %.0f GB/s read and written\n", devices.front().name.c_str(), copy_gbs);
  std::printf("%ld layers, %.1f GB of weights made in %.1f s\n\n", layers, static_cast<double>(made_up.bytes) / 1e9,
              milliseconds_since(start) / 1000);
  std::printf("| context | rows | ms a step | ms at copy speed | of the bound | tokens/s |\n|---|---|---|---|---|---|\n");
  ThreadPool pool(4);
  const Device device{.info = devices.front(), .catalogue = backend.catalogue(), .memory = &memory, .graphs = Graphs::on};
  for (const std::int64_t context : {8192, 131072}) measure(made_up, device, pool, context, copy_gbs, max_rows);
  return 0;
}

}  // namespace
}  // namespace reckoner

// usage: cuda_step_bench [LAYERS [MAX_ROWS]]
int main(int argc, char** argv) {
  const auto number = [&](int index, std::int64_t otherwise) {
    return argc > index ? std::max<std::int64_t>(1, std::atoll(argv[index])) : otherwise;
  };
  return reckoner::run(number(1, 78), number(2, 128));
}
