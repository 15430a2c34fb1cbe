#include "cli/verify_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

std::string chunk_text(const VerifyCase& result, const VerifyRun& run) {
  return run.chunk >= result.tokens ? "all at once" : fmt::format("{} a step", run.chunk);
}

std::string layer_text(std::size_t index, std::size_t count) {
  if (index == 0) return "embedding";
  // The last one is taken after the final norm, which follows the last layer.
  return index + 1 == count ? "final norm" : fmt::format("layer {}", index - 1);
}

std::string runs_text(const VerifyCase& result) {
  std::string text = fmt::format("  {:<14}{:<12}{:<12}{:<14}{}\n", "tokens", "logits", "argmax", "generated", "verdict");
  for (const VerifyRun& run : result.runs) {
    text += fmt::format("  {:<14}{:<12}{:<12}{:<14}{}\n", chunk_text(result, run), fmt::format("{:.1e}", run.logit_error),
                        fmt::format("{}/{}", run.argmax_equal, run.argmax_checked),
                        result.generated > 0 ? fmt::format("{}/{}", run.generated_equal, result.generated) : "-",
                        run.failure.empty() ? "PASS" : "FAIL: " + run.failure);
  }
  return text;
}

// Positions that are beyond the bound and right all the same, and why.
std::string ties_text(const VerifyCase& result) {
  std::string text;
  for (const VerifyRun& run : result.runs) {
    if (run.left_out == 0) continue;
    const RoutingChange& first = run.ties.front();
    text += fmt::format(
        "  {}: {} positions are beyond the bound, and within it of exact arithmetic that resolves {} near ties of routers as\n"
        "    the run did; the first: at position {} layer {} chose expert {} for {}, {:.1e} apart where rounding makes {:.1e}\n",
        chunk_text(result, run), run.left_out, run.ties.size(), first.position, first.layer, first.to, first.from, first.gap,
        first.allowed);
  }
  return text;
}

std::string hidden_text(const VerifyCase& result) {
  std::string text = "  hidden states: largest difference, of the largest value\n";
  const std::size_t layers = result.runs.front().hidden_error.size();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::string line = fmt::format("  {:<14}", layer_text(layer, layers));
    for (const VerifyRun& run : result.runs) {
      const double scale = run.hidden_scale[layer];
      line += fmt::format("{:<20}", fmt::format("{:.1e} of {:.2g}", run.hidden_error[layer], scale));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

json::object run_json(const VerifyRun& run) {
  json::array hidden;
  for (std::size_t layer = 0; layer < run.hidden_error.size(); ++layer) {
    const double scale = run.hidden_scale[layer];
    hidden.push_back(json::object{
        {"max_error", run.hidden_error[layer]}, {"max_reference", scale}, {"relative", scale > 0 ? run.hidden_error[layer] / scale : 0}});
  }
  return {{"chunk", run.chunk},
          {"logit_error", run.logit_error},
          {"logprob_error", run.logprob_error},
          {"argmax_checked", run.argmax_checked},
          {"argmax_equal", run.argmax_equal},
          {"argmax_wrong", run.argmax_wrong},
          {"generated_equal", run.generated_equal},
          {"hidden", std::move(hidden)},
          {"left_out", run.left_out},
          {"router_ties", static_cast<std::int64_t>(run.ties.size())},
          {"passed", run.failure.empty()},
          {"failure", run.failure}};
}

// The first failure as a sentence, or nothing.
std::string first_failure(const std::vector<VerifyCase>& results) {
  for (const VerifyCase& result : results) {
    for (const VerifyRun& run : result.runs) {
      if (!run.failure.empty()) return fmt::format("case {}, {}: {}", result.name, chunk_text(result, run), run.failure);
    }
  }
  return {};
}

}  // namespace

std::string case_text(const VerifyCase& result) {
  const std::string generated = result.generated > 0 ? fmt::format(" and {} generated", result.generated) : "";
  return fmt::format("case {}: {} tokens{}; logits may be off by {:.1e}\n{}{}\n", result.name, result.tokens, generated,
                     result.bound.logit_error, runs_text(result), ties_text(result) + hidden_text(result));
}

std::string verdict(const std::vector<VerifyCase>& results) {
  const std::string failure = first_failure(results);
  if (!failure.empty()) return "verify: FAIL: " + failure;
  return "verify: PASS";
}

std::string verify_json(const Session& session, const std::string& reference, const std::vector<VerifyCase>& results) {
  json::array cases;
  for (const VerifyCase& result : results) {
    json::array runs;
    for (const VerifyRun& run : result.runs) runs.push_back(run_json(run));
    cases.push_back(json::object{{"name", result.name},
                                 {"tokens", result.tokens},
                                 {"generated", result.generated},
                                 {"logit_bound", result.bound.logit_error},
                                 {"passed", result.passed()},
                                 {"runs", std::move(runs)}});
  }
  const json::object object{{"model", session.name},
                            {"reference", reference},
                            {"precision", session.precision_name},
                            {"threads", session.pool->threads()},
                            {"device", session.device_names()},
                            {"ranks", session.ranks()},
                            {"kernels", session.kernels},
                            {"passed", first_failure(results).empty()},
                            {"failure", first_failure(results)},
                            {"cases", std::move(cases)}};
  return json::serialize(object) + "\n";
}

}  // namespace reckoner
