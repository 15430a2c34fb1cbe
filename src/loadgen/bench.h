// From options to a report: looks at the server, makes the plan, warms up, runs the load, sums up.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "loadgen/load_run.h"
#include "loadgen/options.h"
#include "loadgen/report.h"

namespace reckoner::loadgen {

struct BenchHooks {
  LoadHooks load;
  std::function<void(const std::string&)> note = [](const std::string&) {};  // what is being done
};

// Error: the server cannot be reached or refuses a first request; the data set cannot be read. Failed requests are in the report.
Result<Report> bench_server(LoadOptions options, const BenchHooks& hooks);

}  // namespace reckoner::loadgen
