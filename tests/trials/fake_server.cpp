// A server for tests of `reckoner trials`: speaks just enough HTTP, and fails as it is told to.
//
// usage: fake_server --port N [NAME=VALUE ...] [OPTION ...]
//   NAME=VALUE                     a setting
//   --ignore NAME=VALUE            whatever NAME is set to, VALUE takes effect
//   --override NAME=VALUE:OTHER    VALUE becomes OTHER
//   --warn CONDITION:TEXT          prints TEXT at the start
//   --fail CONDITION:BEHAVIOUR     CONDITION: `always`, or settings that take effect, NAME=VALUE,NAME=VALUE; `20%` among them: at random
// Behaviours at the start: exit, no_arch, oom_load, oom_graph, assert, hang, crash. At requests: nan, nan_status, garbage, ufffd, empty,
// wrong, silent, abort, abort_late (half a second after the connection was closed), slow, unstable. At the end: ignore_term, escape (a
// child in a session of its own holds the port), escape_unmarked (the same without our environment).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Settings = std::map<std::string, std::string>;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

struct Rule {
  std::string condition;
  std::string what;
};

Rule rule_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  return {text.substr(0, colon), text.substr(colon + 1)};
}

struct Plan {
  int port = 0;
  Settings settings;
  std::set<std::string> behaviours;
  std::vector<std::string> warnings;

  bool does(const char* behaviour) const { return behaviours.contains(behaviour); }
};

bool holds(const std::string& condition, const Settings& settings, std::mt19937& random) {
  for (const std::string& part : split(condition, ',')) {
    if (part == "always") continue;
    if (part.ends_with('%')) {
      if (static_cast<int>(random() % 100) >= std::atoi(part.c_str())) return false;
      continue;
    }
    const std::size_t equals = part.find('=');
    const auto found = settings.find(part.substr(0, equals));
    if (found == settings.end() || found->second != part.substr(equals + 1)) return false;
  }
  return true;
}

Plan read_arguments(int argc, char** argv) {
  Plan plan;
  std::vector<Rule> ignored, overridden, warnings, failures;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string next = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--port") plan.port = std::atoi(next.c_str());
    if (word == "--ignore") ignored.push_back({next, ""});
    if (word == "--override") overridden.push_back(rule_of(next));
    if (word == "--warn") warnings.push_back(rule_of(next));
    if (word == "--fail") failures.push_back(rule_of(next));
    if (word.starts_with("--")) {
      ++i;
    } else if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      plan.settings[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  for (const Rule& rule : ignored) {
    const std::size_t equals = rule.condition.find('=');
    plan.settings[rule.condition.substr(0, equals)] = rule.condition.substr(equals + 1);
  }
  for (const Rule& rule : overridden) {
    const std::size_t equals = rule.condition.find('=');
    std::string& value = plan.settings[rule.condition.substr(0, equals)];
    if (value == rule.condition.substr(equals + 1)) value = rule.what;
  }
  std::random_device device;
  std::mt19937 random(device());
  for (const Rule& rule : failures) {
    if (holds(rule.condition, plan.settings, random)) plan.behaviours.insert(rule.what);
  }
  for (const Rule& rule : warnings) {
    if (holds(rule.condition, plan.settings, random)) plan.warnings.push_back(rule.what);
  }
  return plan;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

void fail_at_start(const Plan& plan) {
  if (plan.does("exit")) {
    say("KeyError: 'layers.27.self_attn.qkv_proj.k_scale'");
    std::_Exit(1);
  }
  if (plan.does("oom_load") || plan.does("oom_graph")) {
    if (plan.does("oom_graph")) say("Capture cuda graph begin. This can take up to several minutes.");
    say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB");
    std::_Exit(1);
  }
  if (plan.does("no_arch")) {
    say("RuntimeError: csrc/attention.hpp:219: Unsupported architecture");
    std::_Exit(1);
  }
  if (plan.does("assert")) {
    say("AssertionError: The size of tensor a (3072) must match the size of tensor b (6144)");
    std::_Exit(1);
  }
  if (plan.does("crash")) {
    signal(SIGSEGV, SIG_DFL);  // AddressSanitizer would report it and end with a status
    raise(SIGSEGV);
  }
  if (plan.does("hang")) wait_for_ever();
}

std::string info_json(const Plan& plan) {
  std::string text = "{\"version\":\"1.0\",\"effective\":{";
  for (const auto& [name, value] : plan.settings) {
    if (text.back() != '{') text += ',';
    text += "\"" + name + "\":\"" + value + "\"";
  }
  return text + "}}";
}

// The last prompt, as it stands in the request: enough to answer differently to different ones.
std::string answer_text(const Plan& plan, const std::string& body) {
  static std::atomic<int> count{0};
  if (plan.does("garbage")) return "foss foss foss foss foss foss foss foss foss foss foss";
  if (plan.does("ufffd") && body.find("\xE4\xBD\xA0") != std::string::npos)
    return "Gr\xEF\xBF\xBD\xEF\xBF\xBD"
           "e";
  if (plan.does("empty")) return "";
  if (plan.does("wrong")) return "I do not know.";
  if (plan.does("unstable")) return "answer " + std::to_string(++count);
  return "A fine answer to " + std::to_string(body.size()) + " bytes, which is Paris.";
}

struct Answer {
  int status = 200;
  std::string body;
};

Answer completion(const Plan& plan, const std::string& path, const std::string& body) {
  if (plan.does("nan")) {
    say("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0");
    std::_Exit(1);
  }
  if (plan.does("nan_status")) return {500, R"({"error":{"message":"NaN detected in the logits of layer 3"}})"};
  if (plan.does("abort")) std::abort();
  if (plan.does("silent")) wait_for_ever();
  if (plan.does("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const std::string text = answer_text(plan, body);
  if (path == "/v1/completions") return {200, R"({"choices":[{"text":")" + text + R"(","finish_reason":"stop"}]})"};
  std::string message = R"({"role":"assistant","content":")" + text + "\"";
  if (body.find("\"tools\"") != std::string::npos) {
    message += R"(,"tool_calls":[{"type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}])";
  }
  return {200, R"({"choices":[{"message":)" + message + R"(},"finish_reason":"stop"}]})"};
}

Answer answer_to(const Plan& plan, const std::string& path, const std::string& body) {
  if (path == "/health") return {200, "{}"};
  if (path == "/v1/models") return {200, R"({"data":[{"id":"fake"}]})"};
  if (path == "/server_info") return {200, info_json(plan)};
  if (path.starts_with("/v1/")) return completion(plan, path, body);
  return {404, "{}"};
}

void serve(const Plan& plan, int connection) {
  std::string received;
  char buffer[65536];
  for (;;) {
    std::size_t head = 0;
    std::size_t length = 0;
    for (;;) {
      head = received.find("\r\n\r\n");
      const std::size_t at = received.find("Content-Length: ");
      length = at < head ? std::strtoul(received.c_str() + at + 16, nullptr, 10) : 0;
      if (head != std::string::npos && received.size() >= head + 4 + length) break;
      const ssize_t count = read(connection, buffer, sizeof buffer);
      if (count <= 0) {
        close(connection);
        return;
      }
      received.append(buffer, static_cast<std::size_t>(count));
    }
    const std::size_t path_at = received.find(' ') + 1;
    const std::string path = received.substr(path_at, received.find(' ', path_at) - path_at);
    if (path.starts_with("/v1/") && plan.does("abort_late")) {
      close(connection);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      std::abort();
    }
    const Answer answer = answer_to(plan, path, received.substr(head + 4, length));
    received.erase(0, head + 4 + length);
    const std::string reply = "HTTP/1.1 " + std::to_string(answer.status) +
                              " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" +
                              answer.body;
    (void)!write(connection, reply.data(), reply.size());
  }
}

int listen_at(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener, 64) != 0) {
    say(std::string("OSError: ") + std::strerror(errno));
    std::_Exit(1);
  }
  return listener;
}

// A child that outlives the server with its port, until a minute has passed.
void leave_a_child(const Plan& plan) {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) std::_Exit(0);
  signal(SIGTERM, SIG_IGN);
  if (plan.does("escape_unmarked")) {
    char word[] = "sleep";
    char seconds[] = "60";
    char* arguments[] = {word, seconds, nullptr};
    char* nothing[] = {nullptr};
    execve("/bin/sleep", arguments, nothing);
  }
  sleep(60);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const Plan plan = read_arguments(argc, argv);
  for (const auto& [name, value] : plan.settings) say("effective " + name + "=" + value);
  for (const std::string& warning : plan.warnings) say("WARNING " + warning);
  fail_at_start(plan);
  if (plan.does("ignore_term")) signal(SIGTERM, SIG_IGN);
  const int listener = listen_at(plan.port);
  if (plan.does("escape") || plan.does("escape_unmarked")) leave_a_child(plan);
  say("The server is ready.");
  for (;;) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection >= 0) std::thread([&plan, connection] { serve(plan, connection); }).detach();
  }
}
