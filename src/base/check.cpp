#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace reckoner {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  fmt::print(stderr, "reckoner: internal error at {}:{}: {}{}{}\n  what to do: report this as a bug, with the command that led to it\n",
             file, line, condition, detail.empty() ? "" : ": ", detail);
  std::terminate();
}

}  // namespace reckoner
