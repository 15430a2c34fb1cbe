// Which of the differences between a configuration that passes and one that fails make it fail.
#pragma once

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "diagnose/trials/knowledge.h"

namespace reckoner::trials {

// A configuration that has to be started before the search can go on.
struct Ask {
  Configuration configuration;
};

// The smallest set of settings of `fails` that makes `passes` fail, or what to start to find out. What trials have shown is not asked
// again. Assumes what delta debugging does: with more settings of the failing configuration a failure does not go away. The set is
// checked all the same: `passes` with it has failed, and with any one of them left out has passed or was passed over by exclusions.
std::variant<Ask, FailingSet> isolate(const Knowledge& knowledge, const Configuration& passes, const Configuration& fails);

}  // namespace reckoner::trials
