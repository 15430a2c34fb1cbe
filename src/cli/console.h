// Console: stdout carries results only; everything else goes to stderr.
#pragma once

#include <string_view>

#include "base/result.h"

namespace reckoner {

class Console {
 public:
  Console();

  bool stdin_is_terminal() const { return stdin_terminal_; }
  bool stdout_is_terminal() const { return stdout_terminal_; }
  bool stderr_is_terminal() const { return stderr_terminal_; }
  // Whether stderr may be coloured: a terminal, and neither NO_COLOR nor TERM=dumb says otherwise.
  bool has_colour() const { return colour_; }

  // Leaves out what note() and dimmed() would print; errors stay.
  void be_quiet() { quiet_ = true; }
  bool is_quiet() const { return quiet_; }

  // A line "reckoner: <text>" on stderr.
  void note(std::string_view text);
  // Text on stderr as it is.
  void plain(std::string_view text);
  // Text on stderr, faint where colours are allowed.
  void dimmed(std::string_view text);
  // "reckoner: error: <what>" and "  what to do: <remedy>" on stderr.
  void error(const Error& error);

  // Text on stdout, at once, so that a reader at the other end of a pipe sees it. Error: it cannot be written (the disk is full).
  Status print(std::string_view text);

 private:
  // Starts a new line on stderr when the result on the same screen left its line open.
  void end_line_of_result();

  bool stdin_terminal_ = false;
  bool stdout_terminal_ = false;
  bool stderr_terminal_ = false;
  bool colour_ = false;
  bool quiet_ = false;
  bool line_is_open_ = false;  // the last character on the screen was not a newline
};

}  // namespace reckoner
