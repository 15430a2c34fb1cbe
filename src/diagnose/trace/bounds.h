// Bounds: what a kernel's outputs may be off by, for arguments as they come in a model. The same derivations as for the cases of
// admission, without the assumptions that those make of their numbers.
#pragma once

#include <string_view>
#include <vector>

#include "ops/kernel.h"

namespace reckoner::trace {

// For each element of an output (of a cache: of each token's row). Empty: the bits must agree. `before`: what the op read; `after`: what
// its reference left of it. All in the host's memory.
template <class Args>
std::vector<double> allowed(const Args&, const Args&, std::string_view) {
  return {};
}
std::vector<double> allowed(const LinearArgs& before, const LinearArgs& after, std::string_view output);
std::vector<double> allowed(const LinearExpertsArgs& before, const LinearExpertsArgs& after, std::string_view output);
std::vector<double> allowed(const GatedLinearArgs& before, const GatedLinearArgs& after, std::string_view output);
std::vector<double> allowed(const GatedExpertsArgs& before, const GatedExpertsArgs& after, std::string_view output);
std::vector<double> allowed(const ExpertsCombineArgs& before, const ExpertsCombineArgs& after, std::string_view output);
std::vector<double> allowed(const LinearGroupArgs& before, const LinearGroupArgs& after, std::string_view output);
std::vector<double> allowed(const LatentQueryArgs& before, const LatentQueryArgs& after, std::string_view output);
std::vector<double> allowed(const LatentValueArgs& before, const LatentValueArgs& after, std::string_view output);
std::vector<double> allowed(const RmsNormArgs& before, const RmsNormArgs& after, std::string_view output);
std::vector<double> allowed(const SiluMulArgs& before, const SiluMulArgs& after, std::string_view output);
std::vector<double> allowed(const StoreLatentArgs& before, const StoreLatentArgs& after, std::string_view output);
std::vector<double> allowed(const StoreIndexKeyArgs& before, const StoreIndexKeyArgs& after, std::string_view output);
std::vector<double> allowed(const RotateAndStoreArgs& before, const RotateAndStoreArgs& after, std::string_view output);
std::vector<double> allowed(const AttendLatentArgs& before, const AttendLatentArgs& after, std::string_view output);
std::vector<double> allowed(const AttendGroupedArgs& before, const AttendGroupedArgs& after, std::string_view output);

// Scores of the indexer for one token, in double, of every position up to its own; and what each may be off by in float.
struct IndexScores {
  std::vector<double> scores;
  std::vector<double> allowed;
};
IndexScores index_scores(const IndexSelectArgs& args, std::int64_t token);

// The cache row of a token's `position`, as floats.
std::vector<float> cache_row(const CacheView& cache, const TokenPlaces& places, std::int64_t token, std::int64_t position);

}  // namespace reckoner::trace
