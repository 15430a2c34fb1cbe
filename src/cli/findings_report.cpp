#include "cli/findings_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "cli/text_format.h"

namespace reckoner {
namespace {

namespace json = boost::json;
using findings::Applies;
using findings::Finding;
using findings::Symptom;
using findings::TextMatch;
using findings::WordMatch;

std::string counted(std::int64_t count, std::string_view word) { return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s"); }

std::string applies_text(const Applies& applies) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view what, const std::vector<std::string>& values) {
    if (!values.empty()) parts.push_back(fmt::format("{} {}", what, fmt::join(values, ", ")));
  };
  add("compute capability or hardware", applies.hardware);
  add("models", applies.models);
  add("formats", applies.formats);
  add("engines", applies.engines);
  if (!applies.versions.empty()) parts.push_back("versions " + applies.versions);
  add("with", applies.traits);
  return parts.empty() ? "anywhere" : fmt::format("{}", fmt::join(parts, "; "));
}

std::string symptom_text(const Symptom& symptom) {
  if (!symptom.lint.empty()) return "`reckoner lint` reports " + symptom.lint;
  if (!symptom.observed.empty()) return symptom.observed;
  std::string text = "a line such as: " + symptom.example;
  if (symptom.also) text += ", and one such as: " + symptom.example_also;
  return text;
}

json::array strings(const std::vector<std::string>& values) { return json::array(values.begin(), values.end()); }

json::object symptom_object(const Symptom& symptom) {
  json::object object;
  if (symptom.pattern) {
    object[symptom.pattern->kind() == findings::PatternKind::regex ? "regex" : "literal"] = symptom.pattern->text();
    object["example"] = symptom.example;
  }
  if (symptom.also) {
    object["also"] = symptom.also->text();
    object["example_also"] = symptom.example_also;
  }
  if (!symptom.lint.empty()) object["lint"] = symptom.lint;
  if (!symptom.observed.empty()) object["observed"] = symptom.observed;
  return object;
}

json::object object_of(const Finding& finding) {
  json::array symptoms;
  for (const Symptom& symptom : finding.symptoms) symptoms.push_back(symptom_object(symptom));
  const Applies& applies = finding.applies;
  return {{"id", finding.id},
          {"title", finding.title},
          {"confidence", findings::name(finding.confidence)},
          {"cause", finding.cause},
          {"remedy", finding.remedy},
          {"sources", strings(finding.sources)},
          {"related", strings(finding.related)},
          {"applies", json::object{{"hardware", strings(applies.hardware)},
                                   {"models", strings(applies.models)},
                                   {"formats", strings(applies.formats)},
                                   {"engines", strings(applies.engines)},
                                   {"versions", applies.versions},
                                   {"traits", strings(applies.traits)}}},
          {"symptoms", std::move(symptoms)},
          {"file", finding.file}};
}

// A title, and under it why, what to do and where to read on.
std::string brief(const Finding& finding, const std::string& evidence) {
  std::string text = wrapped(fmt::format("  {}: ", finding.id), fmt::format("{} ({})", finding.title, findings::name(finding.confidence)));
  if (!evidence.empty()) text += wrapped("    evidence  ", evidence);
  text += wrapped("    cause     ", finding.cause);
  text += wrapped("    remedy    ", finding.remedy);
  return text + wrapped("    sources   ", fmt::format("{}", fmt::join(finding.sources, " ")));
}

// The line without what would not fit in two or three of a screen.
std::string evidence(const TextMatch& match) {
  constexpr std::size_t kShown = 240;
  std::string line = valid_utf8(match.line.substr(0, kShown));
  if (match.line.size() > kShown) line += " ...";
  return fmt::format("line {}{}: {}", match.line_number, match.count > 1 ? fmt::format(" and {} more", match.count - 1) : "", line);
}

}  // namespace

std::string findings_list(const std::vector<const Finding*>& findings) {
  std::size_t width = 0;
  for (const Finding* finding : findings) width = std::max(width, finding->id.size());
  std::string text;
  for (const Finding* finding : findings) text += wrapped(fmt::format("{:<{}}  ", finding->id, width), finding->title);
  return text +
         fmt::format("{}; `reckoner findings show ID` says more of one\n", counted(static_cast<std::int64_t>(findings.size()), "finding"));
}

std::string findings_json(const std::vector<const Finding*>& findings) {
  json::array all;
  for (const Finding* finding : findings) all.push_back(object_of(*finding));
  return json::serialize(json::object{{"findings", std::move(all)}}) + "\n";
}

std::string finding_text(const Finding& finding) {
  std::string text = wrapped(finding.id + ": ", finding.title) + "\n";
  text += wrapped("  confidence  ", findings::name(finding.confidence));
  text += wrapped("  applies to  ", applies_text(finding.applies));
  for (const Symptom& symptom : finding.symptoms) text += wrapped("  symptom     ", symptom_text(symptom));
  text += wrapped("  cause       ", finding.cause);
  text += wrapped("  remedy      ", finding.remedy);
  for (const std::string& source : finding.sources) text += "  source      " + source + "\n";
  if (!finding.related.empty()) text += wrapped("  related     ", fmt::format("{}", fmt::join(finding.related, ", ")));
  return text;
}

std::string finding_json(const Finding& finding) { return json::serialize(object_of(finding)) + "\n"; }

std::string search_report(const std::string& what, std::size_t count, const std::vector<TextMatch>& matches,
                          const std::vector<WordMatch>& by_words) {
  std::string text;
  for (const TextMatch& match : matches) text += brief(*match.finding, evidence(match)) + "\n";
  if (!by_words.empty()) {
    text += matches.empty() ? "No finding has such a line; by words, the nearest first:\n\n" : "By words:\n\n";
    for (const WordMatch& match : by_words) text += brief(*match.finding, "") + "\n";
  }
  if (matches.empty() && by_words.empty()) return fmt::format("None of {} known failures is in {}.\n", count, what);
  if (by_words.empty()) text += fmt::format("{} of {} known failures in {}\n", matches.size(), count, what);
  return text;
}

std::string search_json(const std::vector<TextMatch>& matches, const std::vector<WordMatch>& by_words) {
  json::array found;
  for (const TextMatch& match : matches) {
    found.push_back(json::object{{"line_number", match.line_number},
                                 {"line", valid_utf8(match.line)},
                                 {"count", match.count},
                                 {"finding", object_of(*match.finding)}});
  }
  json::array words;
  for (const WordMatch& match : by_words) words.push_back(json::object{{"score", match.score}, {"finding", object_of(*match.finding)}});
  return json::serialize(json::object{{"matches", std::move(found)}, {"by_words", std::move(words)}}) + "\n";
}

}  // namespace reckoner
