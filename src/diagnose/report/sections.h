// Parts of the report that build.cpp puts together.
#pragma once

#include "diagnose/report/report.h"

namespace reckoner::report {

std::vector<const trials::Trial*> ended_trials(const trials::RunRecord& record);
std::vector<const trials::Verdict*> verdicts_of(const trials::RunRecord& record, trials::VerdictKind kind);
Link trial_link(std::int64_t number);
std::vector<Link> trial_links(const std::vector<std::int64_t>& numbers);
Link evidence_link(const Sources& sources, const trials::Evidence& evidence);
Link trial_file_link(const Sources& sources);
// A verdict with the trials that it rests on.
Statement statement_of(const Sources& sources, const trials::Verdict& verdict);

std::vector<std::string> summary_of(const Sources& sources);
Section progress(const Sources& sources);
Section next_steps(const Sources& sources);

// What doctor and trace found, as far as this report knows the fields.
void add_doctor(Section& section, const ToolOutput& doctor);
void add_trace(Section& section, const ToolOutput& trace);

}  // namespace reckoner::report
