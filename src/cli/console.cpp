#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace reckoner {
namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool terminal_is_dumb() {
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
}

}  // namespace

Console::Console()
    : stdin_terminal_(isatty(STDIN_FILENO) == 1),
      stdout_terminal_(isatty(STDOUT_FILENO) == 1),
      stderr_terminal_(isatty(STDERR_FILENO) == 1),
      colour_(stderr_terminal_ && !is_set("NO_COLOR") && !terminal_is_dumb()) {}

void Console::end_line_of_result() {
  if (line_is_open_ && stderr_terminal_) std::fputc('\n', stderr);
  line_is_open_ = false;
}

void Console::note(std::string_view text) {
  if (quiet_) return;
  end_line_of_result();
  fmt::print(stderr, "reckoner: {}\n", text);
}

void Console::plain(std::string_view text) {
  end_line_of_result();
  fmt::print(stderr, "{}", text);
  std::fflush(stderr);
}

void Console::dimmed(std::string_view text) {
  if (quiet_ || text.empty()) return;
  if (colour_) {
    fmt::print(stderr, "\x1b[2m{}\x1b[0m", text);
  } else {
    fmt::print(stderr, "{}", text);
  }
  std::fflush(stderr);
  line_is_open_ = text.back() != '\n';
}

void Console::error(const Error& error) {
  end_line_of_result();
  fmt::print(stderr, "reckoner: error: {}\n", error.message());
}

Status Console::print(std::string_view text) {
  if (text.empty()) return {};
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) return Error{fmt::format("cannot write to stdout: {}", std::strerror(errno)), "check where the output goes"};
  if (stdout_terminal_) line_is_open_ = text.back() != '\n';
  return {};
}

}  // namespace reckoner
