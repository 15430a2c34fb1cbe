#include "cli/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace reckoner {

Error cannot_write(const std::string& path) {
  return {fmt::format("{}: cannot be written: {}", path, std::strerror(errno)), "name a file in a folder that exists and has space"};
}

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return cannot_write(path);
  return {};
}

Status write_file(const std::string& path, std::string_view text, Console& console) {
  TRY(write_file(path, text));
  console.note("wrote " + path);
  return {};
}

}  // namespace reckoner
