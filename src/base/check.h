// CHECK: our own mistakes. A failed CHECK is a bug in Reckoner, never the user's doing; the process stops and says where.
#pragma once

#include <string_view>

namespace reckoner {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);

}  // namespace reckoner

#define CHECK(condition, ...)                                                                    \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::reckoner::check_failed(__FILE__, __LINE__, #condition, ::std::string_view{__VA_ARGS__}); \
  } while (false)
