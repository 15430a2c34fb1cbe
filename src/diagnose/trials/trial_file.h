// TrialFile: what a TOML file asks `reckoner trials` to do. docs/trials.md describes every field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "diagnose/trials/ledger.h"

namespace reckoner::trials {

// One value of a factor: what stands for {factor} in the command. No arguments: the flag is left out.
struct FactorValue {
  std::string label;
  std::vector<std::string> arguments;
};

struct FactorSpec {
  Factor factor;  // values: the labels of `values`
  std::vector<FactorValue> values;
  int baseline = 0;  // an index into values
};

// A word of the command, or the value of an environment variable, with {placeholders}.
struct Variable {
  std::string name;
  std::string value;
};

struct Target {
  std::vector<std::string> command;
  std::vector<Variable> environment;  // a value that consists of one placeholder without arguments leaves the variable out
  std::filesystem::path directory;    // absolute
  std::string host = "127.0.0.1";
  std::int64_t port = 0;  // the first one to try; 0: any free one
  std::string model;      // what requests name; empty: the first one of /v1/models
  std::string api_key;
};

struct Limits {
  double start_s = 600;    // until it is ready
  double request_s = 120;  // for one answer
  double stop_s = 15;      // from SIGTERM to SIGKILL
  std::int64_t max_starts = 40;
  // A flake of this rate is looked for until none having been seen has this confidence.
  double flake_rate = 0.2;
  double flake_confidence = 0.9;
};

// When a server is ready: the first of these that is given.
struct Readiness {
  std::string path = "/health";    // is answered with status 200
  std::optional<std::regex> line;  // a line of its output matches
};

enum class ProbeKind {
  health,
  short_answer,
  long_answer,
  long_prompt,
  repeated_prefix,
  concurrent,
  non_ascii,
  tool_call,
  determinism,
  expect
};
struct ProbeKindName {
  ProbeKind kind;
  std::string_view name;
};
inline constexpr ProbeKindName kProbeKinds[] = {
    {ProbeKind::health, "health"},
    {ProbeKind::short_answer, "short"},
    {ProbeKind::long_answer, "long"},
    {ProbeKind::long_prompt, "long_prompt"},  // past the length from which sparse attention leaves tokens out
    {ProbeKind::repeated_prefix, "repeated_prefix"},
    {ProbeKind::concurrent, "concurrent"},
    {ProbeKind::non_ascii, "non_ascii"},
    {ProbeKind::tool_call, "tool_call"},
    {ProbeKind::determinism, "determinism"},
    {ProbeKind::expect, "expect"},
};
std::string_view name(ProbeKind kind);

enum class Api { chat, completions };

struct ProbeSpec {
  std::string name;
  ProbeKind kind = ProbeKind::short_answer;
  Api api = Api::chat;
  std::string path = "/health";      // of health
  std::string prompt;                // empty: the kind's own
  std::optional<std::regex> answer;  // what every answer has to contain
  std::string answer_text;           // that expression as written
  std::int64_t max_tokens = 0;       // 0: the kind's own
  std::int64_t words = 2600;         // of long_prompt and repeated_prefix
  std::int64_t requests = 8;         // of concurrent and determinism
  double max_s = 0;                  // an answer that takes longer is slow; 0: never
  std::string extra;                 // JSON members for the request, "{...}" or empty
};

// How to read back what a key of the configuration became: from the output, or from an endpoint's JSON.
struct EffectiveSpec {
  std::string key;
  std::optional<std::regex> line;  // the first group is the value; of several lines, the last one counts
  std::string endpoint;            // "/server_info"
  std::string field;               // "engine.kv_cache.type": members by name, elements by number
};

struct PatternSpec {
  std::string name;
  std::regex line;
  std::optional<Outcome> outcome;  // a classification; nothing: a warning
};

enum class Strategy {
  isolate,  // the listed configurations, then whatever finds out what fails
  listed,   // only the listed configurations
};

struct TrialFile {
  std::string path;
  std::string text;
  std::string name;
  std::string goal;
  Strategy strategy = Strategy::isolate;
  Target target;
  Limits limits;
  Readiness ready;
  std::vector<FactorSpec> factors;
  Settings fixed;
  // Indices into the values of each factor; -1: any.
  std::vector<std::vector<int>> excluded;
  std::vector<std::vector<int>> listed;  // without -1
  std::vector<ProbeSpec> probes;
  std::vector<EffectiveSpec> effective;
  std::vector<PatternSpec> patterns;
};

// Errors name the file and the field. `directory`: that target.directory is relative to.
Result<TrialFile> parse_trial_file(std::string_view text, std::string_view where, const std::filesystem::path& directory);
Result<TrialFile> read_trial_file(const std::filesystem::path& path);

std::vector<Factor> factors_of(const TrialFile& file);

// What placeholders stand for in one start.
struct Placeholders {
  std::vector<int> values;  // of each factor
  std::int64_t port = 0;
};
std::vector<std::string> command_for(const TrialFile& file, const Placeholders& placeholders);
// Variables to set, and (value: nothing) to leave out.
std::vector<std::pair<std::string, std::optional<std::string>>> environment_for(const TrialFile& file, const Placeholders& placeholders);

Settings settings_of(const TrialFile& file, const std::vector<int>& values);
// Error: a factor or value of a ledger that this file does not have.
Result<std::vector<int>> values_of(const TrialFile& file, const Settings& settings);

}  // namespace reckoner::trials
