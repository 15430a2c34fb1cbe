// Which experts a run chose, against those that exact arithmetic chooses. Rounding moves router scores a little, and where the last expert
// that is chosen and the first that is not are closer than that, either choice is right: what follows there is another answer, not an
// error.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/forward.h"

namespace reckoner {

// At one position the first layer that chose otherwise.
struct RoutingChange {
  std::int64_t position = 0;
  std::int64_t layer = 0;
  std::int32_t from = 0;  // an expert that exact arithmetic chooses
  std::int32_t to = 0;    // the one that took its place
  double gap = 0;         // between their scores in exact arithmetic; of their groups where those decided
  double allowed = 0;     // what rounding may bridge
  bool is_tie() const { return gap <= allowed; }
};

// The router logits of a sequence that was fed in exact arithmetic.
class RouterRuler {
 public:
  // `weights` in the host's memory.
  RouterRuler(const ModelConfig& config, const ModelWeights& weights) : config_(config), weights_(weights) {}
  // Rows from `first` on of a layer's router: [tokens, experts] f32.
  void record(std::int64_t layer, std::int64_t first, const Tensor& logits);
  // Notes each position of `changes` that has none yet and where `logits`, those of a run whose activations are off by `relative_error`,
  // choose otherwise.
  void compare(std::int64_t layer, std::int64_t first, const Tensor& logits, double relative_error,
               std::map<std::int64_t, RoutingChange>& changes) const;

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  std::map<std::int64_t, std::vector<float>> logits_;  // by layer: [positions, experts]
};

}  // namespace reckoner
