// StepProbe: what each op of a step read and wrote, in numbers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "diagnose/trace/host_reader.h"
#include "diagnose/trace/values.h"
#include "diagnose/trace/weight_index.h"
#include "ops/kernel.h"

namespace reckoner::trace {

// Which call of a step: the same in every step.
struct CallName {
  std::int64_t layer = -1;
  std::string block;  // "attention"
  std::string op;     // "linear"
  std::string slot;   // what tells calls of an op in a block apart: the weight's last name ("o_proj"), or a number; may be empty

  bool operator==(const CallName&) const = default;
  // "layer 3, experts: linear_experts down_proj"
  std::string text() const;
  // "linear_experts down_proj"
  std::string short_text() const;
};

// One argument of a call.
struct ArgumentStats {
  std::string name;
  ValueStats values;
  std::int64_t row_elements = 1;
};

struct CallStats {
  std::int64_t index = 0;  // in the step
  CallName name;
  std::string kernel;
  std::int64_t first_row = 0;          // of the step, where an op is called for some rows at a time
  std::vector<ArgumentStats> inputs;   // before it ran; with Look::both
  std::vector<ArgumentStats> outputs;  // after
  double took_us = 0;

  // The first with a value that is not finite.
  static const ArgumentStats* bad(const std::vector<ArgumentStats>& arguments);
};

// Numbers of what an op reads: its tensors of floats, and the cache rows of its tokens.
std::vector<ArgumentStats> input_stats(const AnyArgs& args, HostReader& reader);

// none: values are not looked at, only the functions below are called.
enum class Look : std::uint8_t { none, outputs, both };

class StepProbe : public Probe {
 public:
  explicit StepProbe(Look look) : look_(look) {}

  // Layers before this one are passed over.
  std::int64_t first_layer = 0;
  // Before each step.
  void begin_step();
  const std::vector<CallStats>& calls() const { return calls_; }
  // Until the next step: the ops are no longer looked at.
  void stop_looking() { looking_ = false; }
  // Called after each op with what is known of it; may look at the arguments themselves.
  std::function<void(const OpRun& run, const CallStats& stats, HostReader& reader)> each = {};
  // Called before each op with its number in the step.
  std::function<void(const OpRun& run, std::int64_t index, HostReader& reader)> each_before = {};

  void before(const OpRun& run) override;
  void after(const OpRun& run, std::chrono::nanoseconds took) override;

 private:
  CallName name_of(const OpRun& run);
  std::int64_t first_row_of(const OpRun& run, const CallName& name);

  Look look_;
  bool looking_ = true;
  bool passed_over_ = false;  // the call that runs
  std::int64_t next_index_ = 0;
  std::vector<CallStats> calls_;
  CallStats pending_;
  HostReader reader_;
  const DeviceMemory* memory_ = nullptr;
  std::map<std::string, std::int64_t> seen_;         // calls of an op in a block of the step
  std::map<std::string, std::int64_t> rows_so_far_;  // rows of an op that is called for some rows at a time
};

// Takes a probe off when it dies: every way out of a function.
class ProbeScope {
 public:
  ProbeScope(Ops& ops, Probe* probe) : ops_(ops) { ops_.probe = probe; }
  ~ProbeScope() { ops_.probe = nullptr; }
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  Ops& ops_;
};

}  // namespace reckoner::trace
