// against: our values beside another implementation's dump of the same tokens: which names mean the same, and where they first differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/trace/trace.h"
#include "formats/safetensors.h"

namespace reckoner::trace {

// The name of our value that a dump's tensor is about: "layers.3.attention" for "model.layers.3.self_attn.o_proj.output"; empty: unknown.
// `layers`: how many the model has: what leaves the last one is called by another name.
std::string our_name_of(std::string_view name, std::int64_t layers, const ValueStore& values);

struct AlignedValue {
  std::string theirs;
  std::string ours;
  std::int64_t rows = 0;
  double error = 0;  // relative rms of the difference
  double worst = 0;  // of the worst row
  std::int64_t worst_row = 0;
  bool beyond = false;
};

struct Divergence {
  std::string theirs;
  std::string ours;
  std::string place;     // in words: "layer 3, experts: linear_experts down_proj, expert 5"
  std::int64_t row = 0;  // the first row beyond the tolerance
  std::int64_t position = -1;
  std::int64_t expert = -1;
  std::int64_t column = 0;  // of it: the largest difference
  double error = 0;         // of the row, relative rms
  double tolerance = 0;
  double expected = 0;
  double found = 0;
};

struct AgainstReport {
  double tolerance = 0;
  std::vector<AlignedValue> aligned;   // in the order in which they are computed
  std::vector<std::string> unmatched;  // their tensors, with why
  std::vector<std::string> missing;    // our taps that the dump does not have
  std::optional<Divergence> first;
};

// What a row may differ by, as relative rms, when both compute the same: in exact, sums in another order; in fast BF16 roundings, about a
// dozen a layer.
double row_tolerance(Precision precision, std::int64_t layers);

// The prompt of a dump: its tensor `input_ids`, of one dimension or with a batch of one.
Result<std::vector<std::int32_t>> prompt_of(const SafetensorsFile& dump, std::int64_t vocab);

Result<AgainstReport> compare_with(const SafetensorsFile& dump, const TraceReport& report, std::int64_t layers, double tolerance);

}  // namespace reckoner::trace
