// What is told about an answer: the closing line, and the JSON form.
#pragma once

#include <optional>
#include <string>

#include "cli/answer.h"
#include "cli/sampling_options.h"
#include "cli/session.h"

namespace reckoner {

struct Speed {
  double prompt_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // 0: fewer than two tokens
  double bytes_per_s = 0;          // that decode steps moved; 0: too few tokens to say
  double machine_bytes_per_s = 0;  // read bandwidth of the machine, or of the GPU
  std::string of = {};             // which, in words
};

// Measures the machine's bandwidth once, the first time that an answer is long enough to be compared with it.
class Speedometer {
 public:
  Speedometer(Engine& engine, ThreadPool& pool) : engine_(engine), pool_(pool) {}
  Speed measure(std::int64_t prompt_tokens, const Answer& answer);

 private:
  Engine& engine_;
  ThreadPool& pool_;
  std::optional<double> machine_bytes_per_s_;
};

// "12 prompt tokens, 800 tok/s | 8 tokens, 350 tok/s decode, 21.3 GB/s = 63 % of this machine's read bandwidth (34 GB/s)"
std::string closing_line(std::int64_t prompt_tokens, const Answer& answer, const Speed& speed, const EffectiveSampling& sampling);

struct RunFacts {
  double load_s = 0;
  std::int64_t context = 0;
  std::int64_t prompt_tokens = 0;
};
std::string answer_json(const Session& session, Engine& engine, const RunFacts& facts, const Answer& answer, const Speed& speed,
                        const EffectiveSampling& sampling);

}  // namespace reckoner
