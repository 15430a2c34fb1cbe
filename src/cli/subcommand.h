// Subcommand: what each file of this folder that is named for a command gives to main.cpp.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "cli/console.h"
#include "cli/parser_forward.h"

namespace reckoner {

// Runs a command whose options were parsed; gives the exit status of the program.
using Action = std::function<Result<int>(Console& console)>;

struct Subcommand {
  std::string_view name;
  std::string_view summary;      // one line of `reckoner --help`; empty: not shown there
  std::string_view example;      // another one
  Action (*add)(CLI::App& app);  // adds options, description and examples
};

extern const Subcommand kRun;
extern const Subcommand kServe;
extern const Subcommand kVerify;
extern const Subcommand kInspect;
extern const Subcommand kLint;
extern const Subcommand kDoctor;
extern const Subcommand kFindings;
extern const Subcommand kTokenize;
extern const Subcommand kQuantize;
extern const Subcommand kCompare;
extern const Subcommand kBench;
extern const Subcommand kReport;
extern const Subcommand kKernels;
extern const Subcommand kTrace;
extern const Subcommand kReplay;
extern const Subcommand kAdmit;
extern const Subcommand kTrials;

}  // namespace reckoner
