// linear and linear_experts on CUDA devices.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

// For any shape and format, in float.
Kernel<LinearArgs> linear_generic();
Kernel<LinearExpertsArgs> linear_experts_generic();

// For a few tokens; `exact` for any number. Where fits_few_rows(), reading the weights bounds them.
bool fits_few_rows(const Weight& w);
std::int64_t linear_few_workspace(const LinearArgs& args);
void run_linear_few(const LinearArgs& args, Lane& lane);
std::int64_t linear_experts_few_workspace(const LinearExpertsArgs& args);
void run_linear_experts_few(const LinearExpertsArgs& args, Lane& lane);
std::int64_t few_rows_shared_bytes(const Key& key);  // of both, at most

// For a few tokens, `fast`, where few_rows has them: a stream of weights that never waits.
bool fits_linear_stream(const LinearArgs& args);
bool fits_linear_stream(const LinearExpertsArgs& args);
std::int64_t linear_stream_workspace(const LinearArgs& args);
std::int64_t linear_stream_workspace(const LinearExpertsArgs& args);
void run_linear_stream(const LinearArgs& args, Lane& lane);
void run_linear_stream(const LinearExpertsArgs& args, Lane& lane);
std::int64_t stream_shared_bytes(QuantFormat format);  // of both, at most

// For up to eight tokens, `fast`: rows spread over the device.
bool fits_linear_spread(const LinearArgs& args);
std::int64_t linear_spread_workspace(const LinearArgs& args);
void run_linear_spread(const LinearArgs& args, Lane& lane);
// Several weights of one input; those that are exact are not quantised, and there is no norm then.
bool fits_linear_spread(const LinearGroupArgs& args);
std::int64_t linear_spread_workspace(const LinearGroupArgs& args);
void run_linear_spread(const LinearGroupArgs& args, Lane& lane);
inline constexpr std::int64_t kSpreadSharedBytes = 64 << 10;  // with less, fewer shapes fit

// `exact`, for a few hundred rows of a format that is_plain(): not quantised.
bool is_plain(QuantFormat format);
bool fits_exact_rows(const Weight& w);
void run_linear_exact(const LinearArgs& args, Lane& lane);

// For many tokens, `fast`, where fits_many_rows().
bool fits_many_rows(const Weight& w);
std::int64_t linear_many_workspace(const LinearArgs& args);
void run_linear_many(const LinearArgs& args, Lane& lane);
std::int64_t linear_experts_many_workspace(const LinearExpertsArgs& args);
void run_linear_experts_many(const LinearExpertsArgs& args, Lane& lane);
std::int64_t many_rows_shared_bytes(const Key& key);  // of both; 0: never called for this

// For many tokens, `fast`, where fits_wgmma(): for compute capability 9.0.
bool fits_wgmma(const Weight& w);
std::int64_t linear_wgmma_workspace(const LinearArgs& args);
std::int64_t linear_wgmma_workspace(const LinearGroupArgs& args);
std::int64_t linear_wgmma_workspace(const LinearExpertsArgs& args);
void run_linear_wgmma(const LinearArgs& args, Lane& lane);
void run_linear_wgmma(const LinearGroupArgs& args, Lane& lane);  // all `fast`, of one format, without a norm
void run_linear_wgmma(const LinearExpertsArgs& args, Lane& lane);
std::int64_t wgmma_shared_bytes(QuantFormat format);  // of both, at most

// Best first.
std::vector<Kernel<LinearArgs>> linear_kernels();
std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels();
std::vector<Kernel<LinearGroupArgs>> linear_group_kernels();

}  // namespace reckoner::cuda
