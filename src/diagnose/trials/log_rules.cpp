#include "diagnose/trials/log_rules.h"

#include <algorithm>
#include <fstream>

namespace reckoner::trials {

// From what servers print; one rule a kind of failure, the more specific first.
const std::vector<LogRule> kLogRules = {
    {"probability tensor", Outcome::nan, R"(probability tensor contains either)"},
    {"nan values", Outcome::nan,
     R"(\bnan\b[^\n]{0,40}\b(detected|logits|in the|found|values?|at layer|probabilit)|\b(found|contains|detected|are|got|produced|not finite)[^\n]{0,30}\bnan\b|non-finite|\bnot finite\b)"},
    {"no kernel image", Outcome::wrong_architecture, R"(no kernel image is available)"},
    {"unsupported architecture", Outcome::wrong_architecture,
     R"(unsupported (gpu )?(architecture|arch|compute capability|sm ?version)|(architecture|compute capability)[^\n]{0,60}(is )?not supported|is not supported on (sm|compute|this (gpu|device|arch))|only support(s|ed)[^\n]{0,30}\bsm_?\d+|unknown recipe)"},
    {"no valid backend", Outcome::wrong_architecture,
     R"(no valid (attention )?backend|no (usable|suitable|supported) (attention )?(backend|kernel))"},
    {"shared memory", Outcome::wrong_architecture,
     R"(out of resource: shared memory|required:? \d+, hardware limit|exceeds? [^\n]{0,40}shared memory|shared memory[^\n]{0,40}(exceed|too large|limit))"},
    {"illegal instruction", Outcome::wrong_architecture, R"(illegal instruction|SIGILL)"},
    {"out of memory", Outcome::out_of_memory,
     R"(out of memory|outofmemory|cannot allocate memory|std::bad_alloc|not enough memory|failed to allocate|cuda calloc|no available memory for the cache blocks|oom.?kill|insufficient memory)"},
    {"size mismatch", Outcome::assertion, R"(size of tensor a \(\d+\) must match|size mismatch|shape mismatch|mat1 and mat2 shapes)"},
    {"assertion", Outcome::assertion,
     R"(assertionerror|assertion [^\n]{0,200}failed|\bassert(ion)? fail|device-side assert|ggml_assert|check failed|\bCHECK\()"},
    {"illegal access", Outcome::crash,
     R"(illegal memory access|misaligned address|segmentation fault|core dumped|terminate called|\bSIG(SEGV|ABRT|BUS)\b|fatal python error)"},
    {"watchdog", Outcome::hang, R"(watchdog[^\n]{0,60}time ?(out|d out)|collective operation timeout|nccl[^\n]{0,60}timed? ?out)"},
    {"import", Outcome::no_start, R"(modulenotfounderror|importerror|undefined symbol|cannot open shared object)"},
    {"argument", Outcome::no_start, R"(unrecognized arguments?|unknown (option|argument|flag)|invalid choice|invalid value for)"},
    {"port", Outcome::no_start, R"(address already in use|couldn't bind [^\n]{0,20}socket)"},
    {"cache settings", Outcome::no_start, R"(\bv[ _]cache\b[^\n]{0,40}\brequires\b)"},
    {"model file", Outcome::no_start, R"(error loading model: (?!llama_model_loader: failed to load model))"},
    {"file", Outcome::no_start,
     R"(no such file or directory|metadataincompletebuffer|headertoosmall|does not appear to have a file named)"},
    {"load", Outcome::no_start, R"(failed to load model\b|failed to (create|initialize) (the )?(llama_)?context)"},
    {"error", Outcome::no_start, R"(^\s*(\w*error|\w*exception)\b:|\b(fatal|error):)"},
};

const std::vector<PhaseRule> kPhaseRules = {
    {"weight loading", R"(load(ing)? (model )?(weights?|checkpoint|safetensors|model)|load weight begin)"},
    {"kv cache", R"(kv ?cache (is allocated|size|pool|begin)|allocat\w* (the )?kv|memory pool (begin|end)|init_memory_pool|cache blocks)"},
    {"graph capture", R"(captur\w* (the )?(cuda )?graphs?|cuda graph (begin|capture))"},
    {"warm-up", R"(warm ?-?up|warming up)"},
    {"serving", R"(server is (ready|fired up)|application startup complete|uvicorn running|listening on|is ready to roll)"},
};

namespace {

constexpr std::size_t kLineBytes = 2000;  // the library's matcher recurses: longer lines could exhaust the stack
constexpr std::size_t kEvidenceBytes = 400;

std::vector<std::regex> compiled(const auto& rules) {
  std::vector<std::regex> expressions;
  for (const auto& rule : rules) expressions.emplace_back(std::string(rule.expression), std::regex::ECMAScript | std::regex::icase);
  return expressions;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

class Scan {
 public:
  Scan(const TrialFile& file, std::string shown_as) : file_(file), shown_as_(std::move(shown_as)) {}

  void take(const std::string& line) {
    ++number_;
    if (is_blank(line)) return;
    const Evidence evidence{.text = shown_text(line, kEvidenceBytes), .file = shown_as_, .line = number_};
    findings_.last_line = evidence;
    note_phase(line);
    match_rules(line, evidence);
    match_patterns(line, evidence);
    read_settings(line);
  }

  LogFindings findings() {
    if (findings_.phase.empty()) findings_.phase = "start";
    return std::move(findings_);
  }

 private:
  void note_phase(const std::string& line) {
    for (std::size_t i = 0; i < phases_.size(); ++i) {
      if (std::regex_search(line, phases_[i])) findings_.phase = kPhaseRules[i].phase;
    }
  }
  Classified classified(std::string_view rule, Outcome outcome, const Evidence& evidence) const {
    return {
        .rule = std::string(rule), .outcome = outcome, .phase = findings_.phase.empty() ? "start" : findings_.phase, .evidence = evidence};
  }
  // Only rules that come before the one that has matched.
  void match_rules(const std::string& line, const Evidence& evidence) {
    for (std::size_t i = 0; i < std::min(best_, rules_.size()); ++i) {
      if (!std::regex_search(line, rules_[i])) continue;
      best_ = i;
      findings_.failure = classified(kLogRules[i].name, kLogRules[i].outcome, evidence);
      return;
    }
  }
  void match_patterns(const std::string& line, const Evidence& evidence) {
    for (const PatternSpec& pattern : file_.patterns) {
      if (!std::regex_search(line, pattern.line)) continue;
      const auto known = std::find_if(findings_.patterns.begin(), findings_.patterns.end(),
                                      [&](const PatternMatch& match) { return match.pattern == pattern.name; });
      if (known != findings_.patterns.end()) {
        ++known->count;
        continue;
      }
      findings_.patterns.push_back(
          {.pattern = pattern.name, .kind = pattern.outcome ? PatternKind::classification : PatternKind::warning, .evidence = evidence});
      // The file's own classifications count before all rules, the first that matches before the others.
      if (!pattern.outcome || own_) continue;
      own_ = true;
      best_ = 0;
      findings_.failure = classified(pattern.name, *pattern.outcome, evidence);
    }
  }
  void read_settings(const std::string& line) {
    for (const EffectiveSpec& spec : file_.effective) {
      std::smatch match;
      if (!spec.line || !std::regex_search(line, match, *spec.line)) continue;
      const std::string value = shown_text(match[1].str(), kEvidenceBytes);
      const auto known = std::find_if(findings_.effective.begin(), findings_.effective.end(),
                                      [&](const Setting& setting) { return setting.name == spec.key; });
      if (known != findings_.effective.end()) {
        known->value = value;
      } else {
        findings_.effective.push_back({.name = spec.key, .value = value});
      }
    }
  }

  const TrialFile& file_;
  std::string shown_as_;
  std::vector<std::regex> rules_ = compiled(kLogRules);
  std::vector<std::regex> phases_ = compiled(kPhaseRules);
  std::size_t best_ = kLogRules.size();
  bool own_ = false;
  std::int64_t number_ = 0;
  LogFindings findings_;
};

}  // namespace

std::string shown_text(std::string_view bytes, std::size_t limit) {
  std::string result;
  for (std::size_t i = 0; i < bytes.size() && result.size() < limit;) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const std::size_t size = byte < 0x80                   ? 1
                             : byte >= 0xC2 && byte < 0xE0 ? 2
                             : byte >= 0xE0 && byte < 0xF0 ? 3
                             : byte >= 0xF0 && byte < 0xF5 ? 4
                                                           : 0;
    bool good = size > 0 && i + size <= bytes.size();
    for (std::size_t j = 1; good && j < size; ++j) good = (static_cast<unsigned char>(bytes[i + j]) & 0xC0) == 0x80;
    if (good) {
      result.append(bytes.substr(i, size));
      i += size;
    } else {
      result += "\xEF\xBF\xBD";
      ++i;
    }
  }
  while (!result.empty() && (result.back() == '\r' || result.back() == '\n')) result.pop_back();
  return result;
}

Result<LogFindings> scan_log(const TrialFile& file, const std::filesystem::path& log, const std::string& shown_as) {
  std::ifstream lines(log, std::ios::binary);
  if (!lines) return Error{log.string() + ": cannot be read", "check the disk"};
  Scan scan(file, shown_as);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kLineBytes) line.resize(kLineBytes);
    scan.take(line);
  }
  return scan.findings();
}

bool has_line(const std::filesystem::path& log, const std::regex& expression, std::int64_t& from) {
  std::ifstream lines(log, std::ios::binary);
  lines.seekg(from);
  bool found = false;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    from = static_cast<std::int64_t>(lines.tellg());
    if (line.size() > kLineBytes) line.resize(kLineBytes);
    found = found || std::regex_search(line, expression);
  }
  return found;
}

}  // namespace reckoner::trials
