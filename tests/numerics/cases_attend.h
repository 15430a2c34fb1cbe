// What tests of attention kernels share.
#pragma once

#include "cases_cache.h"
#include "diagnose/admission/attend_cases.h"
