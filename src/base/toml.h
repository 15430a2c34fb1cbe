// TOML that comes from outside (trial files, findings), read through the same nodes as JSON so that errors name file and field alike.
#pragma once

#include "base/json.h"

namespace reckoner {

inline constexpr std::int64_t kMaxTomlBytes = std::int64_t{16} << 20;

// Parses TOML 1.0. `where` starts every message: a file's path. Dates and times become strings as TOML writes them. Errors give line and
// column: bad syntax, bad UTF-8, a key that a table has twice; and a text longer than kMaxTomlBytes.
Result<JsonDocument> parse_toml(std::string_view text, std::string_view where);
Result<JsonDocument> read_toml_file(const std::filesystem::path& path);

}  // namespace reckoner
