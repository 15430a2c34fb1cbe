#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "diagnose/trace/trace_report.h"

namespace reckoner::trace {
namespace {

namespace json = boost::json;

std::string number_text(double value) { return std::isfinite(value) ? fmt::format("{:.3g}", value) : "-"; }
std::string error_text(const CallSummary& call) {
  const std::optional<double> error = call.error();
  return error ? fmt::format("{:.1e}", *error) : "-";
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string calls_text(const TraceReport& report) {
  std::string text;
  std::string place = "\n";
  for (const CallSummary& call : report.calls) {
    const std::string here = call.name.layer < 0 ? call.name.block : fmt::format("layer {}", call.name.layer);
    if (here != place) {
      text +=
          fmt::format("{}{:<50} {:>10} {:>10} {:>10} {:>7} {:>9}\n", text.empty() ? "" : "\n", here, "min", "max", "rms", "bad", "error");
    }
    place = here;
    const ValueStats& values = call.output;
    text += trimmed(fmt::format("  {:<48} {:>10} {:>10} {:>10} {:>7} {:>9}",
                                call.name.layer < 0 ? call.name.short_text() : call.name.block + ": " + call.name.short_text(),
                                number_text(values.low), number_text(values.high), values.count > 0 ? number_text(values.rms()) : "-",
                                values.non_finite > 0 ? std::to_string(values.non_finite) : "0", error_text(call)));
  }
  return text;
}

std::string routers_text(const TraceReport& report) {
  if (report.routers.empty()) return "";
  std::string text = fmt::format("\n{:<10} {:>8} {:>9} {:>11} {:>14} {:>10}\n", "routers", "experts", "evenness", "most chosen",
                                 "never chosen", "rerouted");
  for (const RouterBalance& router : report.routers) {
    text += fmt::format("  layer {:<3}{:>8} {:>9.2f} {:>10.1f}% {:>14} {:>10}\n", router.layer, router.chosen.size(), router.entropy(),
                        100 * router.max_share(), router.idle(),
                        report.compared_exact ? fmt::format("{}/{}", router.rerouted, router.tokens) : "-");
  }
  return text;
}

std::string selections_text(const TraceReport& report) {
  std::string text;
  for (const SelectionQuality& quality : report.selections) {
    if (quality.rows == 0) continue;
    text += fmt::format("  layer {:<3}{:>8} {:>14.1f}% {:>13.1f}%\n", quality.layer, quality.rows, 100 * quality.mean_kept(),
                        100 * quality.least_kept);
  }
  if (text.empty()) return "";
  return fmt::format("\n{:<10} {:>8} {:>15} {:>14}\n", "selections", "rows", "attention kept", "least of a row") + text;
}

std::string against_text(const AgainstReport& against) {
  std::string text = fmt::format("\nagainst (rows may differ by {:.1e} of their rms)\n  {:<44} {:<44} {:>6} {:>9} {:>9}\n",
                                 against.tolerance, "theirs", "ours", "rows", "error", "worst row");
  for (const AlignedValue& value : against.aligned) {
    text += fmt::format("  {:<44} {:<44} {:>6} {:>9.1e} {:>9.1e}{}\n", value.theirs, value.ours, value.rows, value.error, value.worst,
                        value.beyond ? "  BEYOND" : "");
  }
  for (const std::string& name : against.unmatched) text += fmt::format("  not matched: {}\n", name);
  if (!against.missing.empty()) {
    text += "  not in the dump:";
    for (const std::string& name : against.missing) text += " " + name;
    text += "\n";
  }
  return text;
}

json::value number_json(double value) { return std::isfinite(value) ? json::value(value) : json::value(nullptr); }

json::object name_json(const CallName& name) {
  return {{"layer", name.layer}, {"block", name.block}, {"op", name.op}, {"slot", name.slot}};
}

json::object place_json(const FilePlace& place) { return {{"tensor", place.tensor}, {"file", place.file}, {"offset", place.file_offset}}; }

json::object origin_json(const Origin& origin) {
  json::object object{{"step", origin.step},
                      {"call", name_json(origin.call)},
                      {"kernel", origin.kernel},
                      {"rank", origin.rank},
                      {"argument", origin.argument},
                      {"row", origin.row},
                      {"rows", json::array(origin.rows.begin(), origin.rows.end())},
                      {"bad_rows", origin.bad_rows},
                      {"column", origin.column},
                      {"token", origin.token},
                      {"position", origin.position},
                      {"cause", name(origin.cause)},
                      {"detail", origin.detail},
                      {"sentence", origin.sentence()}};
  if (origin.expert >= 0) object["expert"] = origin.expert;
  if (!origin.weight.empty()) object["weight"] = origin.weight;
  if (origin.place) object["place"] = place_json(*origin.place);
  if (origin.scale_place) object["other_place"] = place_json(*origin.scale_place);
  if (!origin.bundle.empty()) object["bundle"] = origin.bundle;
  if (!origin.bundle_error.empty()) object["bundle_error"] = origin.bundle_error;
  return object;
}

json::object wrong_json(const WrongCall& wrong) {
  json::object object{{"step", wrong.step},
                      {"call", name_json(wrong.call)},
                      {"kernel", wrong.kernel},
                      {"output", wrong.difference.output},
                      {"row", wrong.difference.row},
                      {"column", wrong.difference.column},
                      {"expected", number_json(wrong.difference.expected)},
                      {"found", number_json(wrong.difference.found)},
                      {"error", number_json(wrong.difference.worst)},
                      {"sentence", wrong.sentence()}};
  if (!wrong.bundle.empty()) object["bundle"] = wrong.bundle;
  return object;
}

json::object against_json(const AgainstReport& against) {
  json::array aligned;
  for (const AlignedValue& value : against.aligned) {
    aligned.push_back(json::object{{"theirs", value.theirs},
                                   {"ours", value.ours},
                                   {"rows", value.rows},
                                   {"error", number_json(value.error)},
                                   {"worst_row_error", number_json(value.worst)},
                                   {"worst_row", value.worst_row},
                                   {"beyond", value.beyond}});
  }
  json::object object{{"tolerance", against.tolerance},
                      {"aligned", std::move(aligned)},
                      {"unmatched", json::array(against.unmatched.begin(), against.unmatched.end())},
                      {"missing", json::array(against.missing.begin(), against.missing.end())},
                      {"first_divergence", nullptr}};
  if (!against.first) return object;
  const Divergence& first = *against.first;
  object["first_divergence"] = {{"theirs", first.theirs},
                                {"ours", first.ours},
                                {"place", first.place},
                                {"row", first.row},
                                {"position", first.position},
                                {"expert", first.expert},
                                {"column", first.column},
                                {"error", number_json(first.error)},
                                {"expected", number_json(first.expected)},
                                {"found", number_json(first.found)}};
  return object;
}

}  // namespace

std::string verdict_of(const TraceReport& report, const AgainstReport* against) {
  if (report.origin) return "NOT FINITE: " + report.origin->sentence();
  if (report.wrong)
    return fmt::format("WRONG: {} ({} of {} calls differ from their reference)", report.wrong->sentence(), report.wrong_calls,
                       report.checked_calls);
  if (against != nullptr && against->first) {
    const Divergence& first = *against->first;
    const std::string position = first.position >= 0 ? fmt::format(" (position {})", first.position) : "";
    return fmt::format(
        "DIVERGES: first at {}, row {}{}, column {}: {:.6g} where {} has {:.6g}; the row is off by {:.1e} of its rms, {:.1e} "
        "is allowed",
        first.place, first.row, position, first.column, first.found, first.theirs, first.expected, first.error, first.tolerance);
  }
  std::string text = "all values are finite";
  if (report.checked_calls > 0)
    text += fmt::format("; {} calls agree with their reference (largest error {:.2f} of what is allowed{})", report.checked_calls,
                        report.check_worst, report.check_worst_place.empty() ? "" : ", " + report.check_worst_place);
  if (against != nullptr) text += fmt::format("; {} tensors agree with the dump", against->aligned.size());
  return text;
}

std::string trace_text(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against) {
  std::string text = fmt::format("{} on {}, {}: {} tokens of prompt, {} generated, {} steps\n\n", facts.model, facts.device,
                                 facts.precision, report.prompt_tokens, report.generated.size(), report.steps);
  text += calls_text(report);
  if (report.compared_exact) text += "\nerror: rms of the difference to exact, of the rms of exact\n";
  text += routers_text(report) + selections_text(report);
  if (against != nullptr) text += against_text(*against);
  text += "\n" + verdict_of(report, against) + "\n";
  if (report.origin && !report.origin->bundle.empty()) text += "bundle: " + report.origin->bundle + "\n";
  if (report.wrong && !report.wrong->bundle.empty()) text += "bundle: " + report.wrong->bundle + "\n";
  return text;
}

std::string trace_json(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against) {
  json::array calls, routers, selections;
  for (const CallSummary& call : report.calls) {
    json::object one = name_json(call.name);
    one["kernel"] = call.kernel;
    one["count"] = call.output.count;
    one["non_finite"] = call.output.non_finite;
    one["min"] = number_json(call.output.low);
    one["max"] = number_json(call.output.high);
    one["rms"] = number_json(call.output.rms());
    one["took_us"] = call.took_us;
    const std::optional<double> error = call.error();
    one["error"] = error ? number_json(*error) : json::value(nullptr);
    calls.push_back(std::move(one));
  }
  for (const RouterBalance& router : report.routers) {
    routers.push_back(json::object{{"layer", router.layer},
                                   {"chosen", json::array(router.chosen.begin(), router.chosen.end())},
                                   {"evenness", router.entropy()},
                                   {"max_share", router.max_share()},
                                   {"never_chosen", router.idle()},
                                   {"tokens", router.tokens},
                                   {"rerouted", router.rerouted}});
  }
  for (const SelectionQuality& quality : report.selections) {
    selections.push_back(json::object{
        {"layer", quality.layer}, {"rows", quality.rows}, {"attention_kept", quality.mean_kept()}, {"least_kept", quality.least_kept}});
  }
  json::object object{{"model", facts.model},
                      {"device", facts.device},
                      {"precision", facts.precision},
                      {"version", facts.version},
                      {"prompt_tokens", report.prompt_tokens},
                      {"generated", json::array(report.generated.begin(), report.generated.end())},
                      {"steps", report.steps},
                      {"compared_exact", report.compared_exact},
                      {"verdict", verdict_of(report, against)},
                      {"calls", std::move(calls)},
                      {"routers", std::move(routers)},
                      {"selections", std::move(selections)},
                      {"origin", nullptr},
                      {"wrong", nullptr},
                      {"checked_calls", report.checked_calls},
                      {"against", nullptr}};
  if (report.origin) object["origin"] = origin_json(*report.origin);
  if (report.wrong) object["wrong"] = wrong_json(*report.wrong);
  if (against != nullptr) object["against"] = against_json(*against);
  return json::serialize(object) + "\n";
}

}  // namespace reckoner::trace
