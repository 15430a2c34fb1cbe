#include "diagnose/trials/trial_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/mapped_file.h"
#include "base/toml.h"

namespace reckoner::trials {
namespace {

constexpr std::size_t kMaxRegexBytes = 400;  // the library's matcher recurses

// A field that the table does not have is more often a typing mistake than a wish.
Status only_fields(const JsonNode& table, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : TRY(table.as_object())) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string list;
      for (const std::string_view field : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", field);
      return value.error("there is no such field", "the fields here are " + list);
    }
  }
  return {};
}

Result<std::string> string_or(const JsonNode& table, std::string_view key, std::string fallback) {
  const std::optional<JsonNode> node = TRY(table.optional(key));
  return node ? node->as_string() : Result<std::string>(std::move(fallback));
}

Result<double> seconds_or(const JsonNode& table, std::string_view key, double fallback) {
  const std::optional<JsonNode> node = TRY(table.optional(key));
  if (!node) return fallback;
  const double value = TRY(node->as_float());
  if (value <= 0 || value > 1e6) return node->error("expected seconds above 0", "a million at most");
  return value;
}

Result<std::int64_t> integer_or(const JsonNode& table, std::string_view key, std::int64_t fallback, std::int64_t min, std::int64_t max) {
  const std::optional<JsonNode> node = TRY(table.optional(key));
  return node ? node->as_int64(min, max) : Result<std::int64_t>(fallback);
}

Result<std::vector<std::string>> strings(const JsonNode& node) {
  std::vector<std::string> list;
  for (const JsonNode& element : TRY(node.as_array())) list.push_back(TRY(element.as_string()));
  return list;
}

// The elements of an array of tables; none when it is not there.
Result<std::vector<JsonNode>> tables(const JsonNode& root, std::string_view key) {
  const std::optional<JsonNode> node = TRY(root.optional(key));
  return node ? node->as_array() : Result<std::vector<JsonNode>>(std::vector<JsonNode>());
}

Result<std::regex> expression(const JsonNode& node) {
  const std::string text = TRY(node.as_string());
  if (text.empty() || text.size() > kMaxRegexBytes)
    return node.error(fmt::format("expected a regular expression of 1 to {} bytes", kMaxRegexBytes));
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return node.error(fmt::format("is no regular expression: {}", error.what()),
                      "write it as in JavaScript; in '...' TOML keeps backslashes");
  }
}

Result<std::optional<std::regex>> optional_expression(const JsonNode& table, std::string_view key) {
  const std::optional<JsonNode> node = TRY(table.optional(key));
  if (!node) return std::optional<std::regex>();
  std::regex regex = TRY(expression(*node));
  return std::optional(std::move(regex));
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 100 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

Result<FactorValue> read_value(const JsonNode& node) {
  if (node.is_string()) {
    const std::string label = TRY(node.as_string());
    if (label.empty()) return node.error("an empty value has no name", "write { name = \"none\", arguments = [] }");
    return FactorValue{.label = label, .arguments = {label}};
  }
  if (!node.is_object()) return node.unexpected("a string, or { name = ..., arguments = [...] }");
  TRY(only_fields(node, {"name", "arguments"}));
  const JsonNode name = TRY(node.required("name"));
  const JsonNode arguments = TRY(node.required("arguments"));
  FactorValue value;
  value.label = TRY(name.as_string());
  value.arguments = TRY(strings(arguments));
  if (value.label.empty()) return name.error("a value needs a name");
  return value;
}

Result<int> index_of(const FactorSpec& factor, const JsonNode& node) {
  const std::string label = TRY(node.as_string());
  for (std::size_t i = 0; i < factor.values.size(); ++i) {
    if (factor.values[i].label == label) return static_cast<int>(i);
  }
  return node.error(fmt::format("'{}' is no value of the factor '{}'", label, factor.factor.name),
                    fmt::format("its values are {}", fmt::join(factor.factor.values, ", ")));
}

Result<FactorSpec> read_factor(const JsonNode& node) {
  TRY(only_fields(node, {"name", "about", "values", "baseline", "effective"}));
  FactorSpec spec;
  const JsonNode name = TRY(node.required("name"));
  spec.factor.name = TRY(name.as_string());
  if (!is_name(spec.factor.name) || spec.factor.name == "port" || spec.factor.name == "host") {
    return name.error("a factor's name is of letters, digits, '_', '-' and '.', and not 'port' or 'host'");
  }
  spec.factor.about = TRY(string_or(node, "about", ""));
  spec.factor.effective_key = TRY(string_or(node, "effective", spec.factor.name));
  const JsonNode values = TRY(node.required("values"));
  for (const JsonNode& value : TRY(values.as_array())) {
    spec.values.push_back(TRY(read_value(value)));
    if (std::count(spec.factor.values.begin(), spec.factor.values.end(), spec.values.back().label) > 0) {
      return value.error(fmt::format("the value '{}' is there twice", spec.values.back().label));
    }
    spec.factor.values.push_back(spec.values.back().label);
  }
  if (spec.values.size() < 2) return values.error("a factor needs two values", "put what does not vary under [fixed]");
  if (const std::optional<JsonNode> baseline = TRY(node.optional("baseline"))) spec.baseline = TRY(index_of(spec, *baseline));
  spec.factor.baseline = spec.factor.values[static_cast<std::size_t>(spec.baseline)];
  return spec;
}

// A table of factor = value; `other` for the factors that it does not name.
Result<std::vector<int>> read_configuration(const TrialFile& file, const JsonNode& node, const std::vector<int>& other) {
  std::vector<int> values = other;
  for (const auto& [key, value] : TRY(node.as_object())) {
    const auto found = std::find_if(file.factors.begin(), file.factors.end(),
                                    [name = std::string_view(key)](const FactorSpec& spec) { return spec.factor.name == name; });
    if (found == file.factors.end()) {
      return value.error("there is no such factor", fmt::format("the factors are {}", text(settings_of(file, other))));
    }
    values[static_cast<std::size_t>(found - file.factors.begin())] = TRY(index_of(*found, value));
  }
  return values;
}

// {name} in `text` must be a factor, or one of `own`. "{{" and "}}" stand for braces.
Status check_placeholders(const TrialFile& file, const JsonNode& node, const std::string& word) {
  for (std::size_t at = word.find('{'); at != std::string::npos; at = word.find('{', at + 1)) {
    if (word.substr(at, 2) == "{{") {
      ++at;
      continue;
    }
    const std::size_t end = word.find('}', at);
    if (end == std::string::npos) return node.error("a '{' without '}'", "write {{ for a brace");
    const std::string name = word.substr(at + 1, end - at - 1);
    if (name == "port" || name == "host") continue;
    const auto found =
        std::find_if(file.factors.begin(), file.factors.end(), [&](const FactorSpec& spec) { return spec.factor.name == name; });
    if (found == file.factors.end()) {
      return node.error(fmt::format("'{{{}}}' is no factor", name), "name a [[factor]], port or host; write {{ for a brace");
    }
    if (at == 0 && end + 1 == word.size()) continue;
    for (const FactorValue& value : found->values) {
      if (value.arguments.size() != 1) {
        return node.error(
            fmt::format("'{{{}}}' is part of a word, but its value '{}' is {} words", name, value.label, value.arguments.size()),
            "let the placeholder be a word of its own, or give each value one argument");
      }
    }
  }
  return {};
}

Status read_target(TrialFile& file, const JsonNode& node, const std::filesystem::path& directory) {
  TRY(only_fields(node, {"command", "environment", "directory", "host", "port", "model", "api_key"}));
  Target& target = file.target;
  const JsonNode command = TRY(node.required("command"));
  for (const JsonNode& word : TRY(command.as_array())) {
    target.command.push_back(TRY(word.as_string()));
    TRY(check_placeholders(file, word, target.command.back()));
  }
  if (target.command.empty() || target.command.front().empty()) return command.error("a command needs a program");
  if (const std::optional<JsonNode> environment = TRY(node.optional("environment"))) {
    for (const auto& [key, value] : TRY(environment->as_object())) {
      target.environment.push_back({.name = key, .value = TRY(value.as_string())});
      TRY(check_placeholders(file, value, target.environment.back().value));
    }
  }
  const std::string folder = TRY(string_or(node, "directory", "."));
  target.directory = (directory / folder).lexically_normal();
  target.host = TRY(string_or(node, "host", target.host));
  target.port = TRY(integer_or(node, "port", 0, 0, 65535));
  target.model = TRY(string_or(node, "model", ""));
  target.api_key = TRY(string_or(node, "api_key", ""));
  return {};
}

Status read_limits(Limits& limits, const JsonNode& node) {
  TRY(only_fields(node, {"start_s", "request_s", "stop_s", "max_starts", "flake_rate", "flake_confidence"}));
  limits.start_s = TRY(seconds_or(node, "start_s", limits.start_s));
  limits.request_s = TRY(seconds_or(node, "request_s", limits.request_s));
  limits.stop_s = TRY(seconds_or(node, "stop_s", limits.stop_s));
  limits.max_starts = TRY(integer_or(node, "max_starts", limits.max_starts, 1, 100'000));
  for (const auto& [key, value] : {std::pair("flake_rate", &limits.flake_rate), std::pair("flake_confidence", &limits.flake_confidence)}) {
    const std::optional<JsonNode> share = TRY(node.optional(key));
    if (!share) continue;
    *value = TRY(share->as_float());
    if (!(*value >= 0.001 && *value <= 0.999)) return share->error("expected a number from 0.001 to 0.999");
  }
  return {};
}

Result<ProbeSpec> read_probe(const JsonNode& node) {
  TRY(only_fields(node, {"kind", "name", "api", "path", "prompt", "answer", "max_tokens", "words", "requests", "max_s", "request"}));
  ProbeSpec spec;
  const JsonNode kind = TRY(node.required("kind"));
  const std::string kind_name = TRY(kind.as_string());
  const auto found =
      std::find_if(std::begin(kProbeKinds), std::end(kProbeKinds), [&](const auto& known) { return known.name == kind_name; });
  if (found == std::end(kProbeKinds)) {
    std::vector<std::string_view> names;
    for (const ProbeKindName& known : kProbeKinds) names.push_back(known.name);
    return kind.error(fmt::format("'{}' is no kind of probe", kind_name), fmt::format("the kinds are {}", fmt::join(names, ", ")));
  }
  spec.kind = found->kind;
  spec.name = TRY(string_or(node, "name", kind_name));
  const std::string api = TRY(string_or(node, "api", "chat"));
  if (api != "chat" && api != "completions") return node.error("'api': expected \"chat\" or \"completions\"");
  spec.api = api == "chat" ? Api::chat : Api::completions;
  spec.path = TRY(string_or(node, "path", spec.path));
  spec.prompt = TRY(string_or(node, "prompt", ""));
  spec.answer_text = TRY(string_or(node, "answer", ""));
  spec.answer = TRY(optional_expression(node, "answer"));
  spec.max_tokens = TRY(integer_or(node, "max_tokens", 0, 1, 1'000'000));
  spec.words = TRY(integer_or(node, "words", spec.words, 1, 1'000'000));
  spec.requests = TRY(integer_or(node, "requests", spec.kind == ProbeKind::determinism ? 2 : spec.requests, 2, 1000));
  spec.max_s = TRY(seconds_or(node, "max_s", 0));
  if (const std::optional<JsonNode> extra = TRY(node.optional("request"))) {
    TRY(extra->as_object());
    spec.extra = boost::json::serialize(extra->value());
  }
  if (spec.kind == ProbeKind::expect && !spec.answer) return node.error("a probe of kind 'expect' needs 'answer'", "a regular expression");
  if (spec.kind == ProbeKind::expect && spec.prompt.empty()) return node.error("a probe of kind 'expect' needs 'prompt'");
  return spec;
}

Result<EffectiveSpec> read_effective(const JsonNode& node) {
  TRY(only_fields(node, {"key", "log", "endpoint", "field"}));
  EffectiveSpec spec;
  const JsonNode key = TRY(node.required("key"));
  spec.key = TRY(key.as_string());
  spec.line = TRY(optional_expression(node, "log"));
  spec.endpoint = TRY(string_or(node, "endpoint", ""));
  spec.field = TRY(string_or(node, "field", ""));
  if (spec.line && spec.line->mark_count() < 1) {
    return node.error("'log': the expression has no group", "put what is the value in (...)");
  }
  if (spec.line.has_value() == !spec.endpoint.empty() || spec.endpoint.empty() != spec.field.empty()) {
    return node.error("expected either 'log', or 'endpoint' with 'field'");
  }
  return spec;
}

Result<PatternSpec> read_pattern(const JsonNode& node) {
  TRY(only_fields(node, {"name", "log", "outcome"}));
  PatternSpec spec;
  const JsonNode name_node = TRY(node.required("name"));
  const JsonNode line = TRY(node.required("log"));
  spec.name = TRY(name_node.as_string());
  spec.line = TRY(expression(line));
  const std::optional<JsonNode> outcome = TRY(node.optional("outcome"));
  if (!outcome) return spec;
  const std::string outcome_name = TRY(outcome->as_string());
  if (outcome_name == "warning") return spec;
  spec.outcome = outcome_from(outcome_name);
  if (!spec.outcome || spec.outcome == Outcome::pass) {
    return outcome->error(fmt::format("'{}' is no outcome of a failure", outcome_name),
                          "\"warning\", \"nan\", \"out_of_memory\", ...: docs/trials.md");
  }
  return spec;
}

std::vector<ProbeSpec> default_probes() {
  std::vector<ProbeSpec> probes;
  for (const ProbeKind kind : {ProbeKind::health, ProbeKind::short_answer, ProbeKind::determinism, ProbeKind::non_ascii,
                               ProbeKind::repeated_prefix, ProbeKind::concurrent}) {
    ProbeSpec spec{.name = std::string(name(kind)), .kind = kind};
    if (kind == ProbeKind::determinism) spec.requests = 2;
    probes.push_back(spec);
  }
  return probes;
}

Status read_factors(TrialFile& file, const JsonNode& root) {
  for (const JsonNode& node : TRY(tables(root, "factor"))) {
    FactorSpec spec = TRY(read_factor(node));
    for (const FactorSpec& other : file.factors) {
      if (other.factor.name == spec.factor.name) return node.error(fmt::format("the factor '{}' is there twice", spec.factor.name));
    }
    file.factors.push_back(std::move(spec));
  }
  if (file.factors.empty()) return root.error("there is nothing to vary", "name at least one [[factor]]");
  if (const std::optional<JsonNode> fixed = TRY(root.optional("fixed"))) {
    for (const auto& [key, value] : TRY(fixed->as_object())) file.fixed.push_back({.name = key, .value = TRY(value.as_string())});
  }
  std::vector<int> baseline;
  for (const FactorSpec& spec : file.factors) baseline.push_back(spec.baseline);
  const std::vector<int> any(file.factors.size(), -1);
  for (const JsonNode& node : TRY(tables(root, "exclude"))) {
    file.excluded.push_back(TRY(read_configuration(file, node, any)));
    if (file.excluded.back() == any) return node.error("would exclude everything", "name the values that do not go together");
  }
  for (const JsonNode& node : TRY(tables(root, "configuration"))) file.listed.push_back(TRY(read_configuration(file, node, baseline)));
  return {};
}

}  // namespace

std::string_view name(ProbeKind kind) {
  for (const ProbeKindName& known : kProbeKinds) {
    if (known.kind == kind) return known.name;
  }
  return "";
}

Result<TrialFile> parse_trial_file(std::string_view text, std::string_view where, const std::filesystem::path& directory) {
  const JsonDocument document = TRY(parse_toml(text, where));
  const JsonNode root = document.root();
  TRY(only_fields(root, {"name", "goal", "strategy", "target", "limits", "ready", "factor", "fixed", "exclude", "configuration", "probe",
                         "effective", "pattern"}));
  TrialFile file;
  file.path = where;
  file.text = text;
  const JsonNode file_name = TRY(root.required("name"));
  file.name = TRY(file_name.as_string());
  if (!is_name(file.name)) return file_name.error("a name is of letters, digits, '_', '-' and '.'");
  file.goal = TRY(string_or(root, "goal", ""));
  const std::string strategy = TRY(string_or(root, "strategy", "isolate"));
  if (strategy != "isolate" && strategy != "listed") return root.error("'strategy': expected \"isolate\" or \"listed\"");
  file.strategy = strategy == "listed" ? Strategy::listed : Strategy::isolate;
  TRY(read_factors(file, root));
  if (file.strategy == Strategy::listed && file.listed.empty()) {
    return root.error("strategy \"listed\" without a [[configuration]]", "list what to start, or leave 'strategy' out");
  }
  const JsonNode target = TRY(root.required("target"));
  TRY(read_target(file, target, directory));
  if (const std::optional<JsonNode> limits = TRY(root.optional("limits"))) TRY(read_limits(file.limits, *limits));
  if (const std::optional<JsonNode> ready = TRY(root.optional("ready"))) {
    TRY(only_fields(*ready, {"path", "log"}));
    file.ready.path = TRY(string_or(*ready, "path", file.ready.path));
    file.ready.line = TRY(optional_expression(*ready, "log"));
  }
  for (const JsonNode& node : TRY(tables(root, "probe"))) file.probes.push_back(TRY(read_probe(node)));
  if (file.probes.empty()) file.probes = default_probes();
  for (const JsonNode& node : TRY(tables(root, "effective"))) file.effective.push_back(TRY(read_effective(node)));
  for (const JsonNode& node : TRY(tables(root, "pattern"))) file.patterns.push_back(TRY(read_pattern(node)));
  return file;
}

Result<TrialFile> read_trial_file(const std::filesystem::path& path) {
  const std::string text = TRY(read_text_file(path, kMaxTomlBytes));
  return parse_trial_file(text, path.string(), std::filesystem::absolute(path).parent_path());
}

std::vector<Factor> factors_of(const TrialFile& file) {
  std::vector<Factor> factors;
  for (const FactorSpec& spec : file.factors) factors.push_back(spec.factor);
  return factors;
}

namespace {

// The arguments that {name} stands for.
std::vector<std::string> arguments_of(const TrialFile& file, const Placeholders& placeholders, std::string_view name) {
  if (name == "port") return {std::to_string(placeholders.port)};
  if (name == "host") return {file.target.host};
  for (std::size_t i = 0; i < file.factors.size(); ++i) {
    const FactorSpec& spec = file.factors[i];
    if (spec.factor.name == name) return spec.values[static_cast<std::size_t>(placeholders.values[i])].arguments;
  }
  return {};
}

// The words that one word of the template becomes.
std::vector<std::string> expanded(const TrialFile& file, const Placeholders& placeholders, const std::string& word) {
  const bool is_placeholder = word.size() > 2 && word.front() == '{' && word[1] != '{' && word.find('}') == word.size() - 1;
  if (is_placeholder) return arguments_of(file, placeholders, std::string_view(word).substr(1, word.size() - 2));
  std::string result;
  for (std::size_t at = 0; at < word.size(); ++at) {
    const std::string_view rest = std::string_view(word).substr(at);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      result += word[at++];
    } else if (word[at] == '{') {
      const std::size_t end = word.find('}', at);
      const std::vector<std::string> arguments = arguments_of(file, placeholders, std::string_view(word).substr(at + 1, end - at - 1));
      for (const std::string& argument : arguments) result += argument;
      at = end;
    } else {
      result += word[at];
    }
  }
  return {result};
}

}  // namespace

std::vector<std::string> command_for(const TrialFile& file, const Placeholders& placeholders) {
  std::vector<std::string> command;
  for (const std::string& word : file.target.command) {
    for (std::string& part : expanded(file, placeholders, word)) command.push_back(std::move(part));
  }
  return command;
}

std::vector<std::pair<std::string, std::optional<std::string>>> environment_for(const TrialFile& file, const Placeholders& placeholders) {
  std::vector<std::pair<std::string, std::optional<std::string>>> variables;
  for (const Variable& variable : file.target.environment) {
    const std::vector<std::string> words = expanded(file, placeholders, variable.value);
    variables.emplace_back(variable.name, words.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(words, " "))));
  }
  return variables;
}

Settings settings_of(const TrialFile& file, const std::vector<int>& values) {
  Settings settings;
  for (std::size_t i = 0; i < file.factors.size(); ++i) {
    const Factor& factor = file.factors[i].factor;
    settings.push_back({.name = factor.name, .value = values[i] < 0 ? "any" : factor.values[static_cast<std::size_t>(values[i])]});
  }
  return settings;
}

Result<std::vector<int>> values_of(const TrialFile& file, const Settings& settings) {
  std::vector<int> values;
  for (const FactorSpec& spec : file.factors) {
    const std::optional<std::string> label = find(settings, spec.factor.name);
    const auto found = label ? std::find(spec.factor.values.begin(), spec.factor.values.end(), *label) : spec.factor.values.end();
    if (found == spec.factor.values.end()) {
      return Error{fmt::format("{}: a trial of the ledger has {}={}, which is no value of this file", file.path, spec.factor.name,
                               label.value_or("nothing")),
                   "resume with the trial file that began the run, or begin a new one without --resume"};
    }
    values.push_back(static_cast<int>(found - spec.factor.values.begin()));
  }
  return values;
}

}  // namespace reckoner::trials
