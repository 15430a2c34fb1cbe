// Which experts a run chose, against those that exact arithmetic chooses. Rounding moves router scores a little, and where the last expert
// that is chosen and the first that is not are closer than that, either choice is right: what follows, there and at later positions that
// look there, is another answer, not an error. To tell, the same tokens are fed in exact arithmetic with the run's choices of such ties.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "model/forward.h"

namespace reckoner {

// Where a layer of a run chose otherwise than exact arithmetic does on the same way there.
struct RoutingChange {
  std::int64_t position = 0;
  std::int64_t layer = 0;
  std::int32_t from = 0;  // an expert that exact arithmetic chooses
  std::int32_t to = 0;    // the one that took its place
  double gap = 0;         // between their scores in exact arithmetic; of their groups where those decided
  double allowed = 0;     // what rounding may bridge
  bool is_tie() const { return gap <= allowed; }
};

// The router logits of a run.
class RouterLog {
 public:
  // Rows from position `first` on of a layer's router: [tokens, experts] f32, in the host's memory.
  void record(std::int64_t layer, std::int64_t first, const Tensor& logits);
  bool empty() const { return logits_.empty(); }
  const float* row(std::int64_t layer, std::int64_t position, std::int64_t experts) const {
    return logits_.at(layer).data() + position * experts;
  }

 private:
  std::map<std::int64_t, std::vector<float>> logits_;  // by layer: [positions, experts]
};

// Makes a run in exact arithmetic choose as the logged one did wherever that is a tie.
class RoutingGuide {
 public:
  // `weights` in the host's memory.
  RoutingGuide(const ModelConfig& config, const ModelWeights& weights, const RouterLog& log)
      : config_(config), weights_(weights), log_(log) {}
  // `logits` of the exact run, from position `first` on: rows that the logged run, whose activations are off by `relative_error`, resolved
  // otherwise become the logged ones. Rows whose choice rounding cannot explain stay.
  void guide(std::int64_t layer, std::int64_t first, const Tensor& logits, double relative_error);

  std::vector<RoutingChange> ties;    // that were resolved as logged
  std::vector<RoutingChange> errors;  // that rounding cannot explain

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const RouterLog& log_;
};

}  // namespace reckoner
