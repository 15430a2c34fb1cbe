#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace reckoner {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(120);

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What a temporary file holds, from its start.
std::string content(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, count);
  std::fclose(file);
  return text;
}

[[noreturn]] void become(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  _exit(127);
}

// Files instead of pipes: nothing can block.
ProgramRun run_words(const std::vector<std::string>& words, const std::string& input) {
  std::FILE* const files[] = {std::tmpfile(), std::tmpfile(), std::tmpfile()};
  std::fwrite(input.data(), 1, input.size(), files[0]);
  std::rewind(files[0]);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) dup2(fileno(files[i]), i);
    become(words);
  }
  ProgramRun run{.status = status_of(child)};
  std::fclose(files[0]);
  run.out = content(files[1]);
  run.err = content(files[2]);
  return run;
}

// Adds what the terminal shows until `text` has appeared after `from`, which then stands behind it; false when the program ended or
// nothing came in time.
bool read_until(int terminal, std::string& screen, std::size_t& from, const std::string& text) {
  const auto give_up = Clock::now() + kPatience;
  while (text.empty() || screen.find(text, from) == std::string::npos) {
    if (Clock::now() > give_up) return false;
    pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(terminal, buffer, sizeof(buffer));
    if (count <= 0) return false;
    screen.append(buffer, static_cast<std::size_t>(count));
  }
  from = screen.find(text, from) + text.size();
  return true;
}

std::vector<std::string> with_program(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {RECKONER_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

ProgramRun run_program(const std::vector<std::string>& arguments, const std::string& input) {
  return run_words(with_program(arguments), input);
}

ProgramRun run_shell(const std::string& command) {
  return run_words({"/bin/bash", "-c", "RECKONER='" RECKONER_PROGRAM "'; " + command}, "");
}

ProgramRun run_on_terminal(const std::vector<std::string>& arguments, const std::vector<Typed>& typed) {
  int terminal = -1;
  const std::vector<std::string> words = with_program(arguments);
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    become(words);
  }
  ProgramRun run;
  bool all_typed = true;
  std::size_t from = 0;
  for (const auto& [wait_for, keys] : typed) {
    all_typed = all_typed && read_until(terminal, run.out, from, wait_for);
    if (all_typed && write(terminal, keys.data(), keys.size()) < 0) all_typed = false;
  }
  if (!all_typed) kill(child, SIGKILL);
  read_until(terminal, run.out, from, "");
  run.status = status_of(child);
  close(terminal);
  return run;
}

}  // namespace reckoner
