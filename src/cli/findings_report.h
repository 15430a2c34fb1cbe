// Findings as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "diagnose/findings/findings.h"

namespace reckoner {

// One line each.
std::string findings_list(const std::vector<const findings::Finding*>& findings);
std::string findings_json(const std::vector<const findings::Finding*>& findings);

std::string finding_text(const findings::Finding& finding);
std::string finding_json(const findings::Finding& finding);

// `what` was searched for `count` findings.
std::string search_report(const std::string& what, std::size_t count, const std::vector<findings::TextMatch>& matches,
                          const std::vector<findings::WordMatch>& by_words);
std::string search_json(const std::vector<findings::TextMatch>& matches, const std::vector<findings::WordMatch>& by_words);

}  // namespace reckoner
