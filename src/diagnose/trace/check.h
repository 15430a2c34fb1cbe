// Check: every call of an op of a step against the op's reference on the same inputs: finds what is wrong and finite.
#pragma once

#include <optional>
#include <string>

#include "diagnose/trace/origin.h"
#include "diagnose/trace/outputs.h"

namespace reckoner::trace {

struct WrongCall {
  std::int64_t step = 0;
  CallName call;
  std::string kernel;
  OutputDifference difference;
  std::string bundle;
  std::string bundle_error;

  // One line.
  std::string sentence() const;
};

class StepCheck {
 public:
  StepCheck(const WeightIndex& weights, BundleWish wish) : weights_(weights), wish_(std::move(wish)) {}

  // Hooks for a probe, which must not outlive this.
  void attach(StepProbe& probe);
  void begin_step(std::int64_t step) { step_ = step; }

  const std::optional<WrongCall>& first() const { return first_; }
  std::int64_t calls() const { return calls_; }
  std::int64_t wrong_calls() const { return wrong_calls_; }
  // The largest error found that was within what is allowed, and where.
  double worst() const { return worst_; }
  const std::string& worst_place() const { return worst_place_; }

 private:
  void compare(const CallStats& stats, const AnyCaptured& after);

  const WeightIndex& weights_;
  BundleWish wish_;
  std::int64_t step_ = 0;
  std::optional<AnyCaptured> before_;
  std::optional<WrongCall> first_;
  std::int64_t calls_ = 0;
  std::int64_t wrong_calls_ = 0;
  double worst_ = 0;
  std::string worst_place_;
};

}  // namespace reckoner::trace
