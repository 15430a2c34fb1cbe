// The report of `reckoner inspect`, for people and as JSON.
#pragma once

#include <string>

#include "cli/inventory.h"

namespace reckoner {

enum class ListTensors : std::uint8_t { no, yes };

std::string inspect_text(const Session& session, const Inventory& inventory, const MemoryNeeds& memory, ListTensors list);
std::string inspect_json(const Session& session, const Inventory& inventory, const MemoryNeeds& memory, ListTensors list);

}  // namespace reckoner
