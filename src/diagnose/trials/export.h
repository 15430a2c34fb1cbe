// A run as JSON and as CSV, for other programs.
#pragma once

#include <string>

#include "diagnose/trials/ledger.h"

namespace reckoner::trials {

// One object with everything that the ledger holds of the run, named as in ledger.h.
std::string export_json(const RunRecord& record);
// One line a trial; a column for each factor ("set:NAME") and each effective key ("effective:NAME").
std::string export_csv(const RunRecord& record);

}  // namespace reckoner::trials
