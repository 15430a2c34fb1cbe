// The ops of a feed-forward layer that are several others in one go, for few tokens. Where they are no gain a kernel calls those others.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

bool has_gated_linear_few(QuantFormat format);
bool fits_gated_linear_few(const GatedLinearArgs& args);
void run_gated_linear_few(const GatedLinearArgs& args, Lane& lane);

// `fast`: all tiles of all experts, or of one for all tokens, as one stream.
bool fits_gated_stream(const GatedExpertsArgs& args);
bool fits_gated_stream(const GatedLinearArgs& args);
std::int64_t gated_stream_workspace(const Tensor& x, QuantFormat format);
void run_gated_stream(const GatedExpertsArgs& args, Lane& lane);
void run_gated_stream(const GatedLinearArgs& args, Lane& lane);
std::int64_t gated_stream_shared_bytes(QuantFormat format);

// `fast`, up to eight tokens.
bool fits_experts_combine_few(const ExpertsCombineArgs& args);
void run_experts_combine_few(const ExpertsCombineArgs& args, Lane& lane);
std::int64_t experts_combine_shared_bytes(QuantFormat format);
// linear_experts of experts with few columns, for more tokens.
bool fits_experts_down(const LinearExpertsArgs& args);
void run_experts_down(const LinearExpertsArgs& args, Lane& lane);

std::vector<Kernel<GatedLinearArgs>> gated_linear_kernels();
std::vector<Kernel<GatedExpertsArgs>> gated_experts_kernels();
std::vector<Kernel<ExpertsCombineArgs>> experts_combine_kernels();

}  // namespace reckoner::cuda
