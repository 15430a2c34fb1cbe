// Every family, for families(). A new one is one new file and one line here and in list.cpp.
#pragma once

#include "model/family.h"

namespace reckoner {

extern const Family kGlmMoeDsa, kDeepseekV32, kDeepseekV3, kKimiK25, kGlm4Moe, kGlm4MoeLite;

}  // namespace reckoner
