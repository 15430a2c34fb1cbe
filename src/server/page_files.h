// The files of web/, which are part of the program.
#pragma once

#include <span>
#include <string_view>

namespace reckoner {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view content;
};
std::span<const PageFile> page_files();

}  // namespace reckoner
