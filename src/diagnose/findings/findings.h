// Findings: known failures of servers of large models, as data. What a log or a situation shows is looked up in them. docs/findings.md.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "diagnose/findings/pattern.h"

namespace reckoner::findings {

enum class Confidence : std::uint8_t {
  confirmed,  // by a merged fix or a controlled experiment, or the message itself says so
  plausible,  // the reporter's or an unmerged change's explanation
  unknown,    // seen, and nobody knows why
};
std::string_view name(Confidence confidence);

// How a finding shows itself. Exactly one of pattern, lint and observed is there.
struct Symptom {
  std::optional<Pattern> pattern;  // in a line of the log
  std::optional<Pattern> also;     // in another line of the same log, anywhere
  std::string example;             // a line that the pattern is for
  std::string example_also;        // and one for `also`
  std::string lint;                // the id of a kind of finding of `reckoner lint`
  std::string observed;            // for people
};

// Where a finding applies; what is empty does not matter. One of the values of a list must hold, of the traits all.
struct Applies {
  std::vector<std::string> hardware;  // compute capabilities "12.0", "12.x"; names of profiles; "cpu", "amd"
  std::vector<std::string> models;    // model_type
  std::vector<std::string> formats;   // of weights: "nvfp4", "fp8_block"
  std::vector<std::string> engines;   // "sglang", "vllm"; empty: it lies outside of any server
  std::string versions;               // ">=0.5.4, <0.5.10"
  std::vector<std::string> traits;    // of kTraits
};

// What a situation can have beside the above.
inline constexpr std::string_view kTraits[] = {"several-gpus", "pcie",      "unified-memory",   "iommu",
                                               "offload",      "fp8-cache", "sparse-attention", "mtp"};

struct Finding {
  std::string id;
  std::string title;
  Confidence confidence = Confidence::unknown;
  std::string cause;
  std::string remedy;
  std::vector<std::string> sources;  // addresses
  std::vector<std::string> related;  // ids of findings whose symptoms look alike
  Applies applies;
  std::vector<Symptom> symptoms;
  std::string file;  // where it stands
};

// One finding from the text of its file.
Result<Finding> parse_finding(std::string_view text, std::string_view where);
// Those that are part of the program, by id; and, unless `folder` is empty, those of its *.toml files, which may replace one of the same
// id.
Result<std::vector<Finding>> load_findings(const std::filesystem::path& folder = {});
// Null: there is none.
const Finding* find(std::span<const Finding> findings, std::string_view id);

// What is known of a situation; what is empty is not known and contradicts nothing. Traits are known: what is not listed is not so.
struct Facts {
  std::vector<std::string> hardware = {};  // "12.0", "rtx-pro-6000"
  std::string model = {};                  // model_type
  std::vector<std::string> formats = {};
  std::string engine = {};
  std::string version = {};
  std::vector<std::string> traits = {};
  std::optional<std::vector<std::string>> lint = {};  // ids that the checkpoint has; nothing: it was not looked at
};

struct TextMatch {
  const Finding* finding = nullptr;
  const Symptom* symptom = nullptr;
  std::int64_t line_number = 0;  // of the first line, from 1
  std::string line;              // its first kShownBytes
  std::int64_t count = 0;        // of lines that match
  static constexpr std::size_t kShownBytes = 1024;
};

// Looks at a text line by line, however long it is. The findings must outlive it.
class TextMatcher {
 public:
  explicit TextMatcher(std::span<const Finding> findings);
  void add_line(std::string_view line);
  // In the order of their first lines.
  std::vector<TextMatch> matches() const;
  std::int64_t lines() const { return lines_; }

 private:
  struct Candidate {
    TextMatch match;
    bool also_seen = false;
  };
  std::vector<Candidate> candidates_;  // one a symptom with a pattern
  std::int64_t lines_ = 0;
};

std::vector<TextMatch> match_text(std::span<const Finding> findings, std::span<const std::string> lines);
// Until the end of the stream.
std::vector<TextMatch> match_text(std::span<const Finding> findings, std::istream& text);

struct FactMatch {
  const Finding* finding = nullptr;
  bool in_checkpoint = false;        // lint found it there
  std::vector<std::string> because;  // "lint: tensor-twice", "hardware 12.0", "model glm_moe_dsa"
  int weight = 0;                    // how much speaks for it
};

// Findings that the facts do not exclude and of which they confirm something, the best first.
std::vector<FactMatch> match_facts(std::span<const Finding> findings, const Facts& facts);

struct WordMatch {
  const Finding* finding = nullptr;
  double score = 0;
};
// Findings that have the most of these words, rare words counting more; the best first.
std::vector<WordMatch> search_words(std::span<const Finding> findings, std::string_view words);

}  // namespace reckoner::findings
