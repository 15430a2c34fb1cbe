#include "expert_layer.h"

#include <numeric>
#include <random>

namespace reckoner {
namespace {

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

}  // namespace

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

}  // namespace reckoner
