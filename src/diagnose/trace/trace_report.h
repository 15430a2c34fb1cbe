// The report of a trace, as text, JSON and a page.
#pragma once

#include <optional>
#include <string>

#include "diagnose/trace/against.h"
#include "diagnose/trace/trace.h"

namespace reckoner::trace {

// What was traced, in words.
struct TraceFacts {
  std::string model;
  std::string device;
  std::string precision;
  std::string version;
};

std::string trace_text(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against);
std::string trace_json(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against);
// One file, without anything from elsewhere: a heat map of layers and ops.
std::string trace_html(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against);

// What is to be said first: a value that is not finite, a wrong kernel, a divergence, or that all is well.
std::string verdict_of(const TraceReport& report, const AgainstReport* against);

}  // namespace reckoner::trace
