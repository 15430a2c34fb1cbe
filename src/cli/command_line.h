// From argv to the exit status: parsing, help, and the form in which errors are shown.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/subcommand.h"

namespace reckoner {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // what shells expect after Ctrl-C

int run_command_line(int argc, char** argv, std::span<const Subcommand> subcommands);

// The candidate that is closest in spelling to `word`, or empty when none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace reckoner
