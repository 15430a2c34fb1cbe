// Requests that a server that works answers well, and what its answers say about one that does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "diagnose/trials/ledger.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

// What came back for one request.
struct Reply {
  bool complete = false;
  bool timed_out = false;  // else, if not complete: the connection was refused or lost, see `failure`
  int status = 0;
  std::string body;
  std::string failure;
  double seconds = 0;
};

struct Request {
  std::string method = "POST";
  std::string path;
  std::string body;
};

// One server, for the time of one trial.
class ProbeClient {
 public:
  // `interrupted` is asked while answers are waited for: true ends the waiting.
  ProbeClient(const Target& target, std::int64_t port, std::function<bool()> interrupted);
  ~ProbeClient();
  ProbeClient(const ProbeClient&) = delete;
  ProbeClient& operator=(const ProbeClient&) = delete;

  // All at a time; each may take `limit_s`.
  std::vector<Reply> send(const std::vector<Request>& requests, double limit_s);
  Reply get(const std::string& path, double limit_s);
  // What requests name: the target's, or the first model that the server lists.
  const std::string& model(double limit_s);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
  std::function<bool()> interrupted_;
  std::string model_;
};

ProbeResult run_probe(ProbeClient& client, const ProbeSpec& spec, const Limits& limits);

// The value of a field of JSON, as text: "engine.kv.type", "workers.0.port", "settings.[name=kernels].value". Empty: there is none.
std::string field_text(const std::string& json, const std::string& field);

}  // namespace reckoner::trials
