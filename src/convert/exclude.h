// Lists of the modules that stay unquantised, as each kind of metadata spells them.
#pragma once

#include <string>
#include <vector>

namespace reckoner {

// A part of a model in which nothing is quantised: a single module ("lm_head"), or all modules whose names start with `name` and a dot.
struct UnquantisedPart {
  std::string name;
  bool is_module = false;
};

// The fewest parts that cover all of `unquantised` and none of `quantised`; sorted by name, with numbers in their order.
std::vector<UnquantisedPart> unquantised_parts(const std::vector<std::string>& quantised, const std::vector<std::string>& unquantised);

// "lm_head", "model.layers.0.*", "model.layers.3.self_attn*"
std::string as_glob(const UnquantisedPart& part);
// "lm_head", "re:model\\.layers\\.0\\..*"
std::string as_expression(const UnquantisedPart& part);

}  // namespace reckoner
