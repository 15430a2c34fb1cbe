#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <set>

#include "diagnose/findings/findings.h"
#include "diagnose/findings/versions.h"

namespace reckoner::findings {
namespace {

// "12.0" is also "12.x".
bool is_hardware(const std::string& wanted, const std::string& present) {
  return wanted == present || (wanted.ends_with(".x") && present.starts_with(wanted.substr(0, wanted.size() - 1)));
}

enum class Fit : std::uint8_t { does_not_matter, unknown, yes, no };

template <class Same>
Fit fit(const std::vector<std::string>& wanted, const std::vector<std::string>& present, std::string& which, Same&& same) {
  if (wanted.empty()) return Fit::does_not_matter;
  if (present.empty()) return Fit::unknown;
  for (const std::string& want : wanted) {
    for (const std::string& one : present) {
      if (!same(want, one)) continue;
      which = one;
      return Fit::yes;
    }
  }
  return Fit::no;
}

std::vector<std::string> one_or_none(const std::string& text) { return text.empty() ? std::vector<std::string>{} : std::vector{text}; }

// Adds what the facts confirm of where a finding applies. Whether they leave it possible and confirm something that tells: a format or an
// engine alone does not.
bool weigh_applies(const Applies& applies, const Facts& facts, FactMatch& match) {
  const auto equal = [](const std::string& a, const std::string& b) { return a == b; };
  bool excluded = false;
  bool telling = match.in_checkpoint;
  const auto weigh = [&](std::string_view what, const std::vector<std::string>& wanted, const std::vector<std::string>& present, int weight,
                         auto&& same) {
    std::string which;
    const Fit found = fit(wanted, present, which, same);
    if (found == Fit::no) excluded = true;
    if (found != Fit::yes) return;
    telling = telling || what == "hardware" || what == "model";
    match.weight += weight;
    match.because.push_back(fmt::format("{} {}", what, which));
  };
  weigh("hardware", applies.hardware, facts.hardware, 3, is_hardware);
  weigh("model", applies.models, one_or_none(facts.model), 3, equal);
  weigh("format", applies.formats, facts.formats, 3, equal);
  weigh("engine", applies.engines, one_or_none(facts.engine), 2, equal);
  for (const std::string& trait : applies.traits) {
    if (std::find(facts.traits.begin(), facts.traits.end(), trait) == facts.traits.end()) return false;
    telling = true;
    match.weight += 1;
    match.because.push_back(trait);
  }
  if (!applies.versions.empty() && !facts.version.empty()) {
    const Result<bool> within = version_within(facts.version, applies.versions);
    if (!within || !*within) return false;
    match.weight += 1;
    match.because.push_back("version " + facts.version);
  }
  return !excluded && telling;
}

// Ids that lint found and the finding names. `decidable`: the finding names any.
void weigh_lint(const Finding& finding, const Facts& facts, FactMatch& match, bool& decidable) {
  for (const Symptom& symptom : finding.symptoms) {
    if (symptom.lint.empty()) continue;
    decidable = true;
    if (!facts.lint || std::find(facts.lint->begin(), facts.lint->end(), symptom.lint) == facts.lint->end()) continue;
    match.in_checkpoint = true;
    match.because.push_back("lint: " + symptom.lint);
  }
}

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (word.size() > 1) words.insert(word);
    word.clear();
  };
  for (const char c : lower_ascii(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80) {
      word += c;
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

// Where a word stands decides what it counts.
std::map<std::string, double> weighed_words(const Finding& finding) {
  std::map<std::string, double> weights;
  const auto add = [&](std::string_view text, double weight) {
    for (const std::string& word : words_of(text)) weights[word] = std::max(weights[word], weight);
  };
  add(finding.id + " " + finding.title, 3);
  for (const Symptom& symptom : finding.symptoms) add(symptom.observed + " " + symptom.example + " " + symptom.lint, 2);
  for (const auto* list : {&finding.applies.hardware, &finding.applies.models, &finding.applies.formats, &finding.applies.engines})
    for (const std::string& text : *list) add(text, 1.5);
  add(finding.cause + " " + finding.remedy, 1);
  return weights;
}

}  // namespace

TextMatcher::TextMatcher(std::span<const Finding> findings) {
  for (const Finding& finding : findings) {
    for (const Symptom& symptom : finding.symptoms) {
      if (symptom.pattern) candidates_.push_back({.match = {.finding = &finding, .symptom = &symptom}, .also_seen = !symptom.also});
    }
  }
}

void TextMatcher::add_line(std::string_view text) {
  ++lines_;
  if (text.ends_with('\r')) text.remove_suffix(1);
  const Line line(text);
  for (Candidate& candidate : candidates_) {
    const Symptom& symptom = *candidate.match.symptom;
    candidate.also_seen = candidate.also_seen || symptom.also->matches(line);
    if (!symptom.pattern->matches(line)) continue;
    if (candidate.match.count++ > 0) continue;
    candidate.match.line_number = lines_;
    candidate.match.line = std::string(text.substr(0, TextMatch::kShownBytes));
  }
}

std::vector<TextMatch> TextMatcher::matches() const {
  std::vector<TextMatch> all;
  for (const Candidate& candidate : candidates_) {
    if (candidate.match.count == 0 || !candidate.also_seen) continue;
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const TextMatch& other) { return other.finding == candidate.match.finding; });
    if (same == all.end()) {
      all.push_back(candidate.match);
    } else {
      const std::int64_t count = std::max(same->count, candidate.match.count);
      if (candidate.match.line_number < same->line_number) *same = candidate.match;
      same->count = count;
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const TextMatch& a, const TextMatch& b) { return a.line_number < b.line_number; });
  return all;
}

std::vector<TextMatch> match_text(std::span<const Finding> findings, std::span<const std::string> lines) {
  TextMatcher matcher(findings);
  for (const std::string& line : lines) matcher.add_line(line);
  return matcher.matches();
}

std::vector<TextMatch> match_text(std::span<const Finding> findings, std::istream& text) {
  TextMatcher matcher(findings);
  for (std::string line; std::getline(text, line);) matcher.add_line(line);
  return matcher.matches();
}

std::vector<FactMatch> match_facts(std::span<const Finding> findings, const Facts& facts) {
  constexpr int kLintWeight = 100;
  std::vector<FactMatch> matches;
  for (const Finding& finding : findings) {
    FactMatch match{.finding = &finding};
    bool decidable = false;
    weigh_lint(finding, facts, match, decidable);
    if (decidable && facts.lint && !match.in_checkpoint) continue;  // the checkpoint was looked at, and is not so
    if (!weigh_applies(finding.applies, facts, match)) continue;
    if (match.in_checkpoint) match.weight += kLintWeight;
    match.weight = match.weight * 3 + (finding.confidence == Confidence::confirmed   ? 2
                                       : finding.confidence == Confidence::plausible ? 1
                                                                                     : 0);
    matches.push_back(std::move(match));
  }
  std::stable_sort(matches.begin(), matches.end(), [](const FactMatch& a, const FactMatch& b) { return a.weight > b.weight; });
  return matches;
}

std::vector<WordMatch> search_words(std::span<const Finding> findings, std::string_view words) {
  std::vector<std::map<std::string, double>> index;
  for (const Finding& finding : findings) index.push_back(weighed_words(finding));
  std::vector<WordMatch> matches(findings.size());
  for (std::size_t i = 0; i < findings.size(); ++i) matches[i].finding = &findings[i];
  double most = 0;  // what a title with all of these words would have
  for (const std::string& word : words_of(words)) {
    const auto having = std::count_if(index.begin(), index.end(), [&](const auto& one) { return one.contains(word); });
    if (having == 0) continue;
    const double rarity = std::log(1 + static_cast<double>(findings.size()) / static_cast<double>(having));
    most += 3 * rarity;
    for (std::size_t i = 0; i < findings.size(); ++i) {
      if (const auto found = index[i].find(word); found != index[i].end()) matches[i].score += found->second * rarity;
    }
  }
  std::erase_if(matches, [&](const WordMatch& match) { return match.score < most / 6 || match.score == 0; });
  std::stable_sort(matches.begin(), matches.end(), [](const WordMatch& a, const WordMatch& b) { return a.score > b.score; });
  return matches;
}

}  // namespace reckoner::findings
