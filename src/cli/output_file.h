// Files that a command was told to write its result to.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/console.h"

namespace reckoner {

// Right after a failure: names the file and, from errno, the reason.
Error cannot_write(const std::string& path);

// In the place of what the file held. Error: cannot_write.
Status write_file(const std::string& path, std::string_view text);
// The same, with a note that it was done.
Status write_file(const std::string& path, std::string_view text, Console& console);

}  // namespace reckoner
