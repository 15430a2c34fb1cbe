// The plan: which requests are sent when. Made before the first one, from the options and the seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadgen/dataset.h"
#include "loadgen/options.h"

namespace reckoner::loadgen {

struct PlannedRequest {
  double at_s = 0;  // after the start
  std::string body;
  std::int64_t max_tokens = 0;
};

enum class ContinuousUsage { off, on };

// The JSON of a streamed request.
std::string request_body(const LoadOptions& options, const Sample& sample, ContinuousUsage usage);

std::vector<PlannedRequest> make_plan(const LoadOptions& options, const std::vector<Sample>& samples, ContinuousUsage usage);

}  // namespace reckoner::loadgen
