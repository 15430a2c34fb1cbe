// What happened to one request, in seconds after the start of the load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reckoner::loadgen {

enum class FailureKind {
  connect,      // no connection
  status,       // an HTTP status that is no success
  server,       // an error within the stream
  cut,          // the answer ended too early
  malformed,    // what came is no stream of answers
  empty,        // a complete answer without a token
  timeout,      // nothing came for too long
  interrupted,  // we were stopped
};

struct Failure {
  FailureKind kind = FailureKind::connect;
  int status = 0;  // of HTTP; 0: none came
  std::string message;
};

// A piece of the stream that brought tokens.
struct Chunk {
  double at_s = 0;
  std::int64_t tokens = 0;  // 0: the server did not say
};

struct Timeline {
  double arrival_s = 0;  // when it was planned
  double start_s = 0;    // when it was due: its arrival, or later when --max-concurrency held it back
  double end_s = 0;      // the last piece of the answer, or the failure
  bool started = false;
  std::vector<Chunk> chunks;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  bool counted = false;  // the server told the tokens; otherwise a chunk counts as one
  std::string text;      // reasoning included
  std::string finish_reason;
  std::optional<Failure> failure;

  bool ok() const { return started && !failure; }
};

}  // namespace reckoner::loadgen
