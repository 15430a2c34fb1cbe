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
void run_linear_few(const LinearArgs& args, Lane& lane);
void run_linear_experts_few(const LinearExpertsArgs& args, Lane& lane);

// Best first.
std::vector<Kernel<LinearArgs>> linear_kernels();
std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels();

}  // namespace reckoner::cuda
