// Which kernel serves each op, weight format and precision on some device, and why those before it do not.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "diagnose/admission/admission.h"

namespace reckoner {

inline constexpr const char* kNoKernel = "none";
inline constexpr const char* kItsParts = "its parts";  // other ops, of an op that is several at once

// What serves some keys of an op, all in the same way.
struct Served {
  std::string op;
  std::vector<std::string> formats;  // empty: the op has no weight
  std::string precision;
  std::string kernel;
  std::vector<std::string> refused;
  std::int64_t shared_bytes = 0;       // of a GPU's shared memory, the most that a block takes
  std::vector<admission::Item> items;  // the kernel for each of the keys
};

// Of all ops, for weights in these formats.
std::vector<Served> all_served(const Catalogue& catalogue, const DeviceInfo& device, const Refusals& refusals,
                               const std::set<QuantFormat>& formats);

}  // namespace reckoner
