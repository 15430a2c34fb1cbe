// What `reckoner run` does once its options are read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/sampling_options.h"
#include "cli/subcommand.h"
#include "engine/engine.h"

namespace reckoner {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string system;
  bool raw = false;
  TemplateOptions chat_template;
  std::int64_t max_tokens = 0;  // 0: what the context holds
  std::vector<std::string> stop;
  bool show_special = false;
  bool json = false;
  bool verbose = false;
  bool quiet = false;
  SamplingFlags sampling;
  MachineOptions machine;
  LimitOptions limits;
  std::string inject_nan;  // "POSITION:PLACE"
  std::string trace_dir;   // of bundles; "off"
};

Result<int> run(const RunOptions& options, Console& console);

// "5:3.attention" or "5:2.feed-forward" of a model with this many layers.
Result<InjectedFault> parse_fault(const std::string& text, std::int64_t layers);

}  // namespace reckoner
