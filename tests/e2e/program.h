// Runs the built program and keeps what it printed.
#pragma once

#include <string>
#include <vector>

namespace reckoner {

struct ProgramRun {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out;  // stdout
  std::string err;  // stderr
};

// `arguments` without the program's name. `input` is its stdin.
ProgramRun run_program(const std::vector<std::string>& arguments, const std::string& input = "");

// A command line for sh, in which $RECKONER is the program.
ProgramRun run_shell(const std::string& command);

// Starts the program on a terminal of its own, types `keys` (waiting for `wait_for` before each of them), and returns what the screen
// got. `status` as above.
struct Typed {
  std::string wait_for;
  std::string keys;
};
ProgramRun run_on_terminal(const std::vector<std::string>& arguments, const std::vector<Typed>& typed);

}  // namespace reckoner
