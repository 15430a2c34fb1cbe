// The report of `reckoner verify`, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"
#include "diagnose/verify/verify.h"

namespace reckoner {

// Tables of one case: how far off each way of feeding the tokens was, then layer by layer.
std::string case_text(const VerifyCase& result);
// "verify: PASS ..." or "verify: FAIL: <the first failure>"
std::string verdict(const std::vector<VerifyCase>& results);
std::string verify_json(const Session& session, const std::string& reference, const std::vector<VerifyCase>& results);

}  // namespace reckoner
