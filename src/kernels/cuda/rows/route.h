// The ways of route.
#pragma once

#include <cuda_runtime.h>

#include "ops/kernel.h"

namespace reckoner::cuda {

// For any shape.
Kernel<RouteArgs> route_generic();
// Without groups, for up to 512 experts of which up to 32 are chosen; else as the generic one.
Kernel<RouteArgs> route_warps();

// Sorts (token, expert) pairs by expert, within an expert by token. `chosen` [tokens, top_k], on the device.
void fill_slots(const RouteArgs& args, const std::int32_t* chosen, cudaStream_t stream);

}  // namespace reckoner::cuda
