// Kernels tried in a child process: one that crashes or hangs takes nothing else along.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "diagnose/admission/job.h"

namespace reckoner::admission {

struct ChildOptions {
  std::vector<std::string> command;         // reads a job on stdin, prints begin and outcome lines on stdout
  std::chrono::milliseconds limit{30'000};  // for a kernel; the first one's also holds what the device takes to start
};

// An outcome for every item, in their order. A child that ends or is silent for too long refuses the kernel that it was at, and another
// one goes on with the rest. Error: children cannot be started, or end before they begin.
Result<std::vector<Outcome>> admit_in_child(const Job& job, const ChildOptions& options);

}  // namespace reckoner::admission
