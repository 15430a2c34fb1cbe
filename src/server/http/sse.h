// Server-sent events.
#pragma once

#include <string>
#include <string_view>

namespace reckoner {

inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";

// One event whose data is `data`, each of its lines apart, as the format demands. `name` may be empty.
std::string sse_event(std::string_view data, std::string_view name = {});

}  // namespace reckoner
