// The files of findings/, which are part of the program.
#pragma once

#include <span>
#include <string_view>

namespace reckoner {

struct FindingFile {
  std::string_view name;  // "no-kernel-image.toml"
  std::string_view content;
};
std::span<const FindingFile> finding_files();

}  // namespace reckoner
