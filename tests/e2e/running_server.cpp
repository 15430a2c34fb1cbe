#include "running_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace reckoner {
namespace {

std::string read_line(int file) {
  std::string line;
  for (char c; read(file, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

RunningServer::RunningServer(const std::string& model, const std::vector<std::string>& arguments) {
  static std::atomic<int> count{0};
  notes_file_ = std::filesystem::temp_directory_path() / ("serve_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  std::vector<std::string> words = {RECKONER_PROGRAM, "serve", model};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (std::find(arguments.begin(), arguments.end(), "--port") == arguments.end()) words.insert(words.end(), {"--port", "0"});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int out[2];
  if (pipe(out) != 0) throw std::runtime_error("pipe");
  child_ = fork();
  if (child_ == 0) {
    const int notes = open(notes_file_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(out[1], 1);
    dup2(notes, 2);
    close(out[0]);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  close(out[1]);
  address_ = read_line(out[0]);
  close(out[0]);
  if (!address_.empty()) return;
  const std::string said = notes();
  wait();
  throw std::runtime_error("the server did not start: " + said);
}

RunningServer::~RunningServer() {
  if (child_ >= 0) {
    signal(SIGKILL);
    wait();
  }
  std::filesystem::remove(notes_file_);
}

std::uint16_t RunningServer::port() const { return static_cast<std::uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1))); }

void RunningServer::signal(int number) const { kill(child_, number); }

int RunningServer::wait() {
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string RunningServer::notes() const {
  std::ifstream file(notes_file_);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace reckoner
