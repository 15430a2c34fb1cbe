// JSON as published checkpoints have it: indented by two spaces, numbers as Python writes them.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

namespace reckoner {

std::string json_text(const boost::json::value& value);

}  // namespace reckoner
