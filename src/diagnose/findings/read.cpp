#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/mapped_file.h"
#include "base/toml.h"
#include "diagnose/findings/finding_files.h"
#include "diagnose/findings/findings.h"
#include "diagnose/findings/versions.h"
#include "diagnose/lint/finding.h"
#include "tensor/hardware.h"

namespace reckoner::findings {
namespace {

constexpr std::string_view kKeys[] = {"id", "title", "confidence", "cause", "remedy", "sources", "related", "applies", "symptoms"};
constexpr std::string_view kAppliesKeys[] = {"hardware", "models", "formats", "engines", "versions", "traits"};
constexpr std::string_view kSymptomKeys[] = {"regex", "literal", "also", "example", "example_also", "lint", "observed"};

template <class List>
bool has(const List& list, std::string_view value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

// A misspelled key would be ignored otherwise.
Status expect_keys(const JsonNode& node, std::span<const std::string_view> known) {
  const auto members = TRY(node.as_object());
  for (const auto& [key, value] : members) {
    if (!has(known, key)) return value.error("there is no such field", fmt::format("there are {}", fmt::join(known, ", ")));
  }
  return {};
}

// One line without spaces at its ends: texts of several lines are wrapped in the file for people.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const char plain = c == '\n' || c == '\t' || c == '\r' ? ' ' : c;
    if (plain != ' ' || (!line.empty() && line.back() != ' ')) line += plain;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Result<std::string> text_of(const JsonNode& node, std::string_view key) {
  const JsonNode member = TRY(node.required(key));
  const std::string text = TRY(member.as_string());
  const std::string line = on_one_line(text);
  if (line.empty()) return member.error("must not be empty");
  return line;
}

Result<std::string> optional_string(const JsonNode& node, std::string_view key) {
  const std::optional<JsonNode> member = TRY(node.optional(key));
  if (!member) return std::string();
  const std::string text = TRY(member->as_string());
  if (text.empty()) return member->error("must not be empty");
  return text;
}

Result<std::vector<std::string>> optional_strings(const JsonNode& node, std::string_view key) {
  std::vector<std::string> strings;
  const std::optional<JsonNode> member = TRY(node.optional(key));
  if (!member) return strings;
  const std::vector<JsonNode> elements = TRY(member->as_array());
  for (const JsonNode& element : elements) {
    std::string text = TRY(element.as_string());
    if (text.empty() || has(strings, text)) return element.error("must not be empty or there twice");
    strings.push_back(std::move(text));
  }
  if (strings.empty()) return member->error("must not be empty", "leave it out");
  return strings;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

// "12.0" or "12.x"
bool is_capability(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  const auto digits = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return digits(text.substr(0, dot)) && (text.substr(dot + 1) == "x" || digits(text.substr(dot + 1)));
}

Status check_applies(const JsonNode& node, const Applies& applies) {
  for (const std::string& name : applies.hardware) {
    if (!is_capability(name) && name != "cpu" && name != "amd" && find_profile(name) == nullptr)
      return node.error(fmt::format("there is no hardware '{}'", name),
                        "a compute capability (12.0, 12.x), cpu, amd or the name of a profile");
  }
  for (const std::string& trait : applies.traits) {
    if (!has(kTraits, trait))
      return node.error(fmt::format("there is no trait '{}'", trait), fmt::format("there are {}", fmt::join(kTraits, ", ")));
  }
  if (applies.versions.empty()) return {};
  if (applies.engines.size() != 1) return node.error("versions need exactly one engine");
  const Result<bool> compared = version_within("1", applies.versions);
  return compared ? Status() : Status(node.error(compared.error().what, compared.error().remedy));
}

Result<Applies> read_applies(const JsonNode& finding) {
  Applies applies;
  const std::optional<JsonNode> node = TRY(finding.optional("applies"));
  if (!node) return applies;
  TRY(expect_keys(*node, kAppliesKeys));
  applies.hardware = TRY(optional_strings(*node, "hardware"));
  applies.models = TRY(optional_strings(*node, "models"));
  applies.formats = TRY(optional_strings(*node, "formats"));
  applies.engines = TRY(optional_strings(*node, "engines"));
  applies.versions = TRY(optional_string(*node, "versions"));
  applies.traits = TRY(optional_strings(*node, "traits"));
  TRY(check_applies(*node, applies));
  return applies;
}

Result<std::optional<Pattern>> read_pattern(const JsonNode& symptom, std::string_view key, PatternKind kind) {
  const std::string text = TRY(optional_string(symptom, key));
  if (text.empty()) return std::optional<Pattern>();
  Result<Pattern> pattern = Pattern::compile(kind, text);
  if (!pattern) return symptom.error(fmt::format("{}: {}", key, pattern.error().what), pattern.error().remedy);
  return std::optional<Pattern>(*std::move(pattern));
}

// An example that its own pattern misses is a pattern that nobody tried.
Status check_example(const JsonNode& node, const Symptom& symptom) {
  if (!symptom.pattern) {
    return symptom.also || !symptom.example.empty() ? Status(node.error("also and example go with regex or literal")) : Status();
  }
  if (symptom.example.empty()) return node.error("a pattern needs an example", "give a line that it is for as `example`");
  if (!symptom.pattern->matches(Line(symptom.example))) return node.error("the pattern does not match its example");
  if (symptom.also.has_value() != !symptom.example_also.empty()) return node.error("also and example_also go together");
  if (symptom.also && !symptom.also->matches(Line(symptom.example_also))) return node.error("`also` does not match example_also");
  return {};
}

Result<Symptom> read_symptom(const JsonNode& node) {
  TRY(expect_keys(node, kSymptomKeys));
  Symptom symptom;
  symptom.pattern = TRY(read_pattern(node, "regex", PatternKind::regex));
  const std::optional<Pattern> literal = TRY(read_pattern(node, "literal", PatternKind::literal));
  symptom.also = TRY(read_pattern(node, "also", PatternKind::regex));
  symptom.example = TRY(optional_string(node, "example"));
  symptom.example_also = TRY(optional_string(node, "example_also"));
  symptom.lint = TRY(optional_string(node, "lint"));
  symptom.observed = TRY(optional_string(node, "observed"));
  const int kinds = (symptom.pattern ? 1 : 0) + (literal ? 1 : 0) + (symptom.lint.empty() ? 0 : 1) + (symptom.observed.empty() ? 0 : 1);
  if (kinds != 1) return node.error("expected exactly one of regex, literal, lint and observed");
  if (literal) symptom.pattern = literal;
  if (!symptom.lint.empty() && lint::find_kind(symptom.lint) == nullptr)
    return node.error(fmt::format("`reckoner lint` knows no finding '{}'", symptom.lint), "docs/lint.md lists the ids");
  TRY(check_example(node, symptom));
  return symptom;
}

Result<Confidence> read_confidence(const JsonNode& finding) {
  const JsonNode node = TRY(finding.required("confidence"));
  const std::string text = TRY(node.as_string());
  for (const Confidence one : {Confidence::confirmed, Confidence::plausible, Confidence::unknown}) {
    if (text == name(one)) return one;
  }
  return node.unexpected("confirmed, plausible or unknown");
}

Result<std::vector<std::string>> read_sources(const JsonNode& finding) {
  const JsonNode node = TRY(finding.required("sources"));
  std::vector<std::string> sources = TRY(optional_strings(finding, "sources"));
  for (const std::string& source : sources) {
    if (!source.starts_with("https://")) return node.error(fmt::format("'{}' is no https address", source));
  }
  return sources;
}

Result<std::vector<Symptom>> read_symptoms(const JsonNode& finding) {
  const JsonNode node = TRY(finding.required("symptoms"));
  const std::vector<JsonNode> elements = TRY(node.as_array());
  if (elements.empty()) return node.error("a finding needs at least one");
  std::vector<Symptom> symptoms;
  for (const JsonNode& element : elements) {
    Symptom symptom = TRY(read_symptom(element));
    symptoms.push_back(std::move(symptom));
  }
  return symptoms;
}

// A file of one's own may replace a finding of the program, but not one of the same folder.
Status add_folder(const std::filesystem::path& folder, std::vector<Finding>& findings) {
  std::error_code failure;
  std::vector<std::filesystem::path> files;
  for (auto entry = std::filesystem::directory_iterator(folder, failure); !failure && entry != std::filesystem::directory_iterator();
       entry.increment(failure)) {
    if (entry->path().extension() == ".toml") files.push_back(entry->path());
  }
  if (failure) return Error{fmt::format("{}: {}", folder.string(), failure.message()), "give a folder with *.toml files"};
  std::sort(files.begin(), files.end());
  std::set<std::string> seen;
  for (const std::filesystem::path& file : files) {
    const std::string text = TRY(read_text_file(file, kMaxTomlBytes));
    Finding finding = TRY(parse_finding(text, file.string()));
    if (!seen.insert(finding.id).second) return Error{fmt::format("{}: id '{}' stands in another file too", file.string(), finding.id)};
    std::erase_if(findings, [&](const Finding& other) { return other.id == finding.id; });
    findings.push_back(std::move(finding));
  }
  return {};
}

}  // namespace

std::string_view name(Confidence confidence) {
  return confidence == Confidence::confirmed ? "confirmed" : confidence == Confidence::plausible ? "plausible" : "unknown";
}

Result<Finding> parse_finding(std::string_view text, std::string_view where) {
  const JsonDocument document = TRY(parse_toml(text, where));
  const JsonNode node = document.root();
  TRY(expect_keys(node, kKeys));
  Finding finding{.file = std::string(where)};
  finding.id = TRY(text_of(node, "id"));
  if (!is_identifier(finding.id)) return node.error(fmt::format("id '{}': expected lower-case words joined by '-'", finding.id));
  const std::string stem = std::filesystem::path(where).stem().string();
  if (stem != finding.id)
    return node.error(fmt::format("id '{}' is not the file's name", finding.id), "call the file " + finding.id + ".toml");
  finding.title = TRY(text_of(node, "title"));
  finding.confidence = TRY(read_confidence(node));
  finding.cause = TRY(text_of(node, "cause"));
  finding.remedy = TRY(text_of(node, "remedy"));
  finding.sources = TRY(read_sources(node));
  finding.related = TRY(optional_strings(node, "related"));
  finding.applies = TRY(read_applies(node));
  finding.symptoms = TRY(read_symptoms(node));
  return finding;
}

Result<std::vector<Finding>> load_findings(const std::filesystem::path& folder) {
  std::vector<Finding> findings;
  for (const FindingFile& file : finding_files()) {
    Finding finding = TRY(parse_finding(file.content, fmt::format("findings/{}", file.name)));
    findings.push_back(std::move(finding));
  }
  if (!folder.empty()) TRY(add_folder(folder, findings));
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) { return a.id < b.id; });
  for (const Finding& finding : findings) {
    for (const std::string& related : finding.related) {
      if (find(findings, related) == nullptr)
        return Error{fmt::format("{}: field 'related': there is no finding '{}'", finding.file, related)};
    }
  }
  return findings;
}

const Finding* find(std::span<const Finding> findings, std::string_view id) {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.id == id; });
  return found == findings.end() ? nullptr : &*found;
}

}  // namespace reckoner::findings
