// reckoner report: what a series of trials amounts to, as a page for people.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command_line.h"
#include "cli/options.h"
#include "cli/output_file.h"
#include "diagnose/report/report.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Writes what a series of trials was for, what was found, what is eliminated and why, what was never\n"
    "varied, and what to do next. Every statement links to its evidence in the ledger or the logs. Works\n"
    "while the trials go on. Without --markdown and --html it prints Markdown.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner report glm5.db\n"
    "  reckoner report glm5.db --html glm5.html --markdown glm5.md\n"
    "  reckoner report glm5.db --doctor doctor.json --trace trace.json --html glm5.html";

struct ReportFlags {
  std::string ledger;
  std::int64_t run = 0;  // 0: the latest
  std::vector<std::string> doctor;
  std::vector<std::string> traces;
  std::string findings;
  std::string markdown;
  std::string html;
};

Result<std::vector<report::ToolOutput>> read_outputs(const std::vector<std::string>& paths) {
  std::vector<report::ToolOutput> outputs;
  for (const std::string& path : paths) outputs.push_back({path, TRY(read_json_file(path))});
  return outputs;
}

// As a page in `folder` has to call it.
std::filesystem::path seen_from(const std::filesystem::path& folder, const std::filesystem::path& path) {
  const std::filesystem::path relative =
      std::filesystem::absolute(path).lexically_normal().lexically_relative(std::filesystem::absolute(folder).lexically_normal());
  return relative.empty() ? path : relative;
}

Result<int> write_report(const ReportFlags& flags, Console& console) {
  const trials::Ledger ledger = TRY(trials::Ledger::open(flags.ledger, trials::Ledger::Access::read));
  const trials::RunRecord record = TRY(flags.run == 0 ? ledger.read_latest_run() : ledger.read_run(flags.run));
  report::Sources sources{.record = record, .ledger = {}, .logs = {}};
  sources.doctor = TRY(read_outputs(flags.doctor));
  sources.traces = TRY(read_outputs(flags.traces));
  const std::vector<findings::Finding> findings = TRY(findings::load_findings(flags.findings));
  sources.known = report::find_known_failures(record, ledger.folder_of(record.run), findings);
  const auto document_in = [&](const std::filesystem::path& folder) {
    sources.ledger = seen_from(folder, flags.ledger);
    sources.logs = seen_from(folder, ledger.folder_of(record.run));
    return report::build(sources);
  };
  if (flags.markdown.empty() && flags.html.empty()) {
    TRY(console.print(to_markdown(document_in("."))));
    return 0;
  }
  const auto folder_of = [](const std::string& file) { return std::filesystem::absolute(file).parent_path(); };
  if (!flags.markdown.empty()) TRY(write_file(flags.markdown, to_markdown(document_in(folder_of(flags.markdown))), console));
  if (!flags.html.empty()) TRY(write_file(flags.html, to_html(document_in(folder_of(flags.html))), console));
  return 0;
}

Action add_report(CLI::App& app) {
  const auto flags = std::make_shared<ReportFlags>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("LEDGER", flags->ledger, "The ledger of `reckoner trials run`")->required()->option_text(" ");
  accept_range(app.add_option("--run", flags->run, "Which of the ledger's series (default: the latest)"), 1, std::int64_t{1} << 40);
  app.add_option("--doctor", flags->doctor, "What `reckoner doctor --json` printed; may be repeated")
      ->allow_extra_args(false)
      ->option_text("FILE");
  app.add_option("--trace", flags->traces, "What `reckoner trace --json` wrote; may be repeated")
      ->allow_extra_args(false)
      ->option_text("FILE");
  app.add_option("--findings", flags->findings, "A folder of findings of your own, beside those of the program")->option_text("DIR");
  app.add_option("--markdown", flags->markdown, "Write Markdown there")->option_text("FILE")->group("Output");
  app.add_option("--html", flags->html, "Write a page that needs nothing else there")->option_text("FILE")->group("Output");
  return [flags](Console& console) { return write_report(*flags, console); };
}

}  // namespace

const Subcommand kReport = {.name = "report",
                            .summary = "Write what a series of trials amounts to, with its evidence",
                            .example = "reckoner report glm5.db --html glm5.html",
                            .add = add_report};

}  // namespace reckoner
