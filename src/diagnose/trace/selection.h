// What a sparse layer's selection leaves of dense attention.
#pragma once

#include "diagnose/trace/trace.h"

namespace reckoner::trace {

// Adds the rows of one call, in the host's memory.
void add_selection(const AttendLatentArgs& attend, SelectionQuality& quality);

}  // namespace reckoner::trace
