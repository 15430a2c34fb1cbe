#include "diagnose/trials/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace reckoner::trials {
namespace {

namespace json = boost::json;

json::object to_json(const Settings& settings) {
  json::object object;
  for (const Setting& setting : settings) object[setting.name] = setting.value;
  return object;
}

json::object to_json(const Evidence& evidence) { return {{"text", evidence.text}, {"file", evidence.file}, {"line", evidence.line}}; }

template <class List, class Convert>
json::array to_array(const List& list, Convert convert) {
  json::array array;
  for (const auto& element : list) array.push_back(convert(element));
  return array;
}
json::array to_array(const std::vector<std::string>& list) {
  return to_array(list, [](const std::string& text) { return json::value(json::string(text)); });
}

json::value to_json(const ProbeResult& probe) {
  return {{"name", probe.name},      {"kind", probe.kind},     {"outcome", name(probe.outcome)},
          {"detail", probe.detail},  {"answer", probe.answer}, {"fingerprint", probe.fingerprint},
          {"seconds", probe.seconds}};
}

json::value to_json(const PatternMatch& match) {
  return {{"pattern", match.pattern},
          {"kind", match.kind == PatternKind::warning ? "warning" : "classification"},
          {"count", match.count},
          {"evidence", to_json(match.evidence)}};
}

json::value to_json(const Trial& trial) {
  json::object object{{"number", trial.number},
                      {"repeat", trial.repeat},
                      {"purpose", trial.purpose},
                      {"settings", to_json(trial.settings)},
                      {"command", to_array(trial.command)},
                      {"started", trial.started},
                      {"ended", trial.ended},
                      {"log_file", trial.log_file}};
  if (!trial.ended) return object;
  object["outcome"] = name(trial.outcome);
  object["where"] = trial.where;
  object["evidence"] = to_json(trial.evidence);
  object["ending"] = trial.ending;
  if (trial.same_as > 0) object["same_as"] = trial.same_as;
  object["effective"] = to_json(trial.effective);
  object["fingerprint"] = trial.fingerprint;
  object["start_s"] = trial.start_s;
  object["total_s"] = trial.total_s;
  object["peak_memory_bytes"] = trial.peak_memory_bytes;
  if (trial.peak_gpu_bytes >= 0) object["peak_gpu_bytes"] = trial.peak_gpu_bytes;
  object["probes"] = to_array(trial.probes, [](const ProbeResult& probe) { return to_json(probe); });
  object["patterns"] = to_array(trial.patterns, [](const PatternMatch& match) { return to_json(match); });
  object["leftovers"] = to_array(trial.leftovers);
  return object;
}

json::value to_json(const Verdict& verdict) {
  json::object object{{"kind", name(verdict.kind)}, {"text", verdict.text}, {"confidence", verdict.confidence}};
  if (!verdict.name.empty()) object["name"] = verdict.name;
  // A list: inert settings name one factor with several values.
  object["settings"] = to_array(verdict.settings, [](const Setting& setting) {
    return json::value{{"name", setting.name}, {"value", setting.value}};
  });
  if (!verdict.from.empty()) object["from"] = to_json(verdict.from);
  object["trials"] = to_array(verdict.trials, [](std::int64_t number) { return json::value(number); });
  return object;
}

json::value to_json(const Factor& factor) {
  return {{"name", factor.name},
          {"about", factor.about},
          {"effective_key", factor.effective_key},
          {"values", to_array(factor.values)},
          {"baseline", factor.baseline}};
}

// RFC 4180.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string line(const std::vector<std::string>& fields) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? "," : "") + field(fields[i]);
  return text + "\r\n";
}

}  // namespace

std::string export_json(const RunRecord& record) {
  const Run& run = record.run;
  const json::object root{{"name", run.name},
                          {"goal", run.goal},
                          {"file", run.file},
                          {"file_text", run.file_text},
                          {"command", to_array(run.command)},
                          {"folder", run.folder},
                          {"environment", to_json(run.environment)},
                          {"started", run.started},
                          {"updated", run.updated},
                          {"seed", run.seed},
                          {"max_starts", run.max_starts},
                          {"state", run.state == RunState::ended ? "ended" : "running"},
                          {"factors", to_array(record.factors, [](const Factor& factor) { return to_json(factor); })},
                          {"fixed", to_json(record.fixed)},
                          {"trials", to_array(record.trials, [](const Trial& trial) { return to_json(trial); })},
                          {"verdicts", to_array(record.verdicts, [](const Verdict& verdict) { return to_json(verdict); })}};
  return json::serialize(root) + "\n";
}

std::string export_csv(const RunRecord& record) {
  std::vector<std::string> keys;
  for (const Trial& trial : record.trials) {
    for (const Setting& setting : trial.effective) {
      if (std::find(keys.begin(), keys.end(), setting.name) == keys.end()) keys.push_back(setting.name);
    }
  }
  std::vector<std::string> head = {"number",         "repeat",        "purpose", "started", "outcome", "where",   "evidence",
                                   "evidence_file",  "evidence_line", "ending",  "same_as", "start_s", "total_s", "peak_memory_bytes",
                                   "peak_gpu_bytes", "fingerprint"};
  for (const Factor& factor : record.factors) head.push_back("set:" + factor.name);
  for (const std::string& key : keys) head.push_back("effective:" + key);
  std::string text = line(head);
  for (const Trial& trial : record.trials) {
    std::vector<std::string> fields = {std::to_string(trial.number),
                                       std::to_string(trial.repeat),
                                       trial.purpose,
                                       trial.started,
                                       trial.ended ? std::string(name(trial.outcome)) : "",
                                       trial.where,
                                       trial.evidence.text,
                                       trial.evidence.file,
                                       std::to_string(trial.evidence.line),
                                       trial.ending,
                                       trial.same_as > 0 ? std::to_string(trial.same_as) : "",
                                       fmt::format("{:.3f}", trial.start_s),
                                       fmt::format("{:.3f}", trial.total_s),
                                       std::to_string(trial.peak_memory_bytes),
                                       trial.peak_gpu_bytes >= 0 ? std::to_string(trial.peak_gpu_bytes) : "",
                                       trial.fingerprint};
    for (const Factor& factor : record.factors) fields.push_back(find(trial.settings, factor.name).value_or(""));
    for (const std::string& key : keys) fields.push_back(find(trial.effective, key).value_or(""));
    text += line(fields);
  }
  return text;
}

}  // namespace reckoner::trials
