// reckoner findings: known failures, and which of them a log or a text shows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/findings_report.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

using findings::Finding;

constexpr const char* kDescription =
    "Known failures of servers of large models: how each shows itself, its cause, what to do, and who\n"
    "says so. `search` looks in a log for them, or for the ones that a text speaks of.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner findings list --engine sglang\n"
    "  reckoner findings show fp4-gemm-pdl-race\n"
    "  reckoner findings search server.log\n"
    "  reckoner findings search \"second answer is gibberish with fp8 cache\"\n"
    "  journalctl -u my-server | reckoner findings search -";

constexpr int kExitNothingFound = 1;
constexpr std::size_t kMostByWords = 5;

struct FindingsFlags {
  std::string folder;
  std::string id;
  std::string text;
  findings::Facts facts;
  bool json = false;
};

bool fits(const std::vector<std::string>& wanted, const std::string& one) {
  return one.empty() || wanted.empty() || std::find(wanted.begin(), wanted.end(), one) != wanted.end();
}

Result<int> list(const FindingsFlags& flags, Console& console) {
  const std::vector<Finding> all = TRY(findings::load_findings(flags.folder));
  std::vector<const Finding*> shown;
  for (const Finding& finding : all) {
    const findings::Applies& applies = finding.applies;
    const std::string format = flags.facts.formats.empty() ? "" : flags.facts.formats.front();
    if (fits(applies.models, flags.facts.model) && fits(applies.engines, flags.facts.engine) && fits(applies.formats, format))
      shown.push_back(&finding);
  }
  TRY(console.print(flags.json ? findings_json(shown) : findings_list(shown)));
  return 0;
}

Result<int> show(const FindingsFlags& flags, Console& console) {
  const std::vector<Finding> all = TRY(findings::load_findings(flags.folder));
  const Finding* const finding = findings::find(all, flags.id);
  if (finding == nullptr) {
    std::vector<std::string> ids;
    for (const Finding& one : all) ids.push_back(one.id);
    const std::string close = nearest(flags.id, ids);
    return Error{fmt::format("there is no finding '{}'", flags.id),
                 close.empty() ? "`reckoner findings list` lists them, `reckoner findings search` finds by words"
                               : fmt::format("did you mean {}?", close)};
  }
  TRY(console.print(flags.json ? finding_json(*finding) : finding_text(*finding)));
  return 0;
}

struct Searched {
  std::string what;
  std::vector<findings::TextMatch> matches;
  std::vector<findings::WordMatch> by_words;  // of a text that is no log
  bool is_log = true;
};

Result<Searched> search_text(const std::vector<Finding>& all, const std::string& text) {
  if (text == "-") return Searched{.what = "standard input", .matches = findings::match_text(all, std::cin)};
  std::error_code failure;
  if (std::filesystem::is_directory(text, failure)) return Error{text + " is a folder", "name a log in it"};
  if (std::filesystem::exists(text, failure)) {
    std::ifstream file(text);
    if (!file) return Error{text + ": cannot be read"};
    return Searched{.what = text, .matches = findings::match_text(all, file)};
  }
  // A text with a slash and no space was meant as a file.
  if (text.find(' ') == std::string::npos && text.find('/') != std::string::npos)
    return Error{text + ": there is no such file", "name a log, or give the words to look for in quotes"};
  const std::vector<std::string> lines = {text};
  Searched searched{.what = "these words", .matches = findings::match_text(all, lines), .is_log = false};
  for (const findings::WordMatch& match : findings::search_words(all, text)) {
    const bool shown = std::any_of(searched.matches.begin(), searched.matches.end(),
                                   [&](const findings::TextMatch& other) { return other.finding == match.finding; });
    if (!shown && searched.by_words.size() < kMostByWords) searched.by_words.push_back(match);
  }
  return searched;
}

Result<int> search(const FindingsFlags& flags, Console& console) {
  const std::vector<Finding> all = TRY(findings::load_findings(flags.folder));
  const Searched searched = TRY(search_text(all, flags.text));
  TRY(console.print(flags.json ? search_json(searched.matches, searched.by_words)
                               : search_report(searched.what, all.size(), searched.matches, searched.by_words)));
  return searched.matches.empty() && searched.by_words.empty() ? kExitNothingFound : 0;
}

void add_common(CLI::App& app, FindingsFlags& flags) {
  app.add_option("--findings", flags.folder, "Also read the *.toml files of this folder (docs/findings.md)")->option_text("DIR");
  app.add_flag("--json", flags.json, "Print one JSON object");
}

Action add_findings(CLI::App& app) {
  const auto flags = std::make_shared<FindingsFlags>();
  app.description(kDescription);
  app.footer(kExamples);
  app.require_subcommand(1);
  CLI::App* const list_command = app.add_subcommand("list", "List all of them, or those for some engine, model or format");
  list_command->add_option("--engine", flags->facts.engine, "Of this server: sglang, vllm, llama.cpp ...")->option_text("NAME");
  list_command->add_option("--model", flags->facts.model, "Of models of this model_type: glm_moe_dsa ...")->option_text("TYPE");
  list_command->add_option("--format", flags->facts.formats, "Of this weight format: nvfp4, fp8_block ...")
      ->option_text("NAME")
      ->expected(1);
  CLI::App* const show_command = app.add_subcommand("show", "Show one with its cause, remedy and sources");
  show_command->add_option("ID", flags->id, "Its id")->required()->option_text(" ");
  CLI::App* const search_command = app.add_subcommand("search", "Look for them in a log, or by words\nExit status: 0 some, 1 none");
  search_command->add_option("TEXT", flags->text, "A log file, - for standard input, or words")->required()->option_text(" ");
  for (CLI::App* const command : {list_command, show_command, search_command}) {
    command->group("Commands");
    add_common(*command, *flags);
  }
  return [flags, list_command, show_command](Console& console) {
    return list_command->parsed() ? list(*flags, console) : show_command->parsed() ? show(*flags, console) : search(*flags, console);
  };
}

}  // namespace

const Subcommand kFindings = {.name = "findings",
                              .summary = "Look up known failures, by log or by words",
                              .example = "reckoner findings search server.log",
                              .add = add_findings};

}  // namespace reckoner
