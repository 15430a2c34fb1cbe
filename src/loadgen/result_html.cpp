#include <fmt/format.h>

#include <algorithm>

#include "loadgen/report.h"
#include "loadgen/svg_plot.h"

namespace reckoner::loadgen {
namespace {

// Steps of the plots over time: of a tenth of a second or longer, but some at least.
std::size_t steps_of(double duration_s) { return static_cast<std::size_t>(std::clamp(duration_s * 10, 16.0, 80.0)); }

// "2026-01-31 09:30:00" of "20260131-093000".
std::string readable(const std::string& date) {
  if (date.size() != 15) return date;
  return fmt::format("{}-{}-{} {}:{}:{}", date.substr(0, 4), date.substr(4, 2), date.substr(6, 2), date.substr(9, 2), date.substr(11, 2),
                     date.substr(13, 2));
}

constexpr std::string_view kStyle = R"(
:root {
  color-scheme: light dark;
  --ground: #fbfaf8; --raised: #ffffff; --text: #1d1f21; --quiet: #5c6166; --line: #dcd9d3;
  --accent: #8a4b08; --bar: #e9d3b8; --mark: #2f6f8f; --bad: #a3201f;
  font: 16px/1.5 system-ui, sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #17181a; --raised: #202225; --text: #e7e5e1; --quiet: #a0a6ad; --line: #373a3f;
    --accent: #f0b15f; --bar: #54432d; --mark: #7cc1e0; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--ground); color: var(--text); }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
.quiet, figcaption, .name, th { color: var(--quiet); font-weight: normal; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: 0.75rem; margin: 1rem 0; }
.cards > div, figure { background: var(--raised); border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 0.8rem; }
.name { font-size: 0.85rem; }
.value { font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.value small { font-size: 0.8rem; color: var(--quiet); }
.bad .value, .failed { color: var(--bad); }
.failed { border: 1px solid; border-radius: 8px; padding: 0.6rem 0.8rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 0.75rem; }
figure { margin: 0; }
figcaption { font-size: 0.9rem; }
figcaption b { color: var(--text); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin-top: 0.4rem; }
.tick { font-size: 11px; fill: var(--quiet); }
.mark-label { font-size: 11px; fill: var(--mark); }
.grid { stroke: var(--line); }
.bar { fill: var(--bar); }
.curve { fill: none; stroke: var(--accent); stroke-width: 1.8; }
.area { fill: var(--bar); opacity: 0.6; }
.mark { stroke: var(--mark); stroke-dasharray: 3 3; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1.1rem 0.3rem 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; }
.numbers th:not(:first-child), .numbers td:not(:first-child) { text-align: right; white-space: nowrap; }
)";

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string card(std::string_view name, const std::string& value, std::string_view unit, std::string_view css = "") {
  return fmt::format("<div class=\"{}\"><div class=\"name\">{}</div><div class=\"value\">{} <small>{}</small></div></div>\n", css, name,
                     value, unit);
}

std::string cards(const Report& report) {
  const Summary& summary = report.summary;
  std::string html = "<div class=\"cards\">\n";
  html += card("completed", grouped_count(summary.completed), fmt::format("of {}", grouped_count(summary.planned)));
  if (summary.failed > 0) html += card("failed", grouped_count(summary.failed), "requests", "bad");
  if (summary.unfinished > 0) html += card("unfinished", grouped_count(summary.unfinished), "requests", "bad");
  html += card("duration", fmt::format("{:.2f}", summary.duration_s), "s");
  html += card("request throughput", fmt::format("{:.2f}", summary.requests_per_s), "requests/s");
  if (!report.options.goodput.empty()) html += card("goodput", fmt::format("{:.2f}", summary.good_requests_per_s), "requests/s");
  html += card("output throughput", fmt::format("{:.1f}", summary.output_tokens_per_s), "tokens/s");
  html += card("total throughput", fmt::format("{:.1f}", summary.total_tokens_per_s), "tokens/s");
  html += card("peak concurrency", grouped_count(summary.peak_concurrency), "requests");
  html += card("input", grouped_count(summary.input_tokens), "tokens");
  html += card("output", grouped_count(summary.output_tokens), "tokens");
  return html + "</div>\n";
}

std::string latency_table(const Report& report) {
  std::string html = "<div class=\"scroll\"><table class=\"numbers\"><tr><th>milliseconds</th><th>mean</th><th>median</th><th>std</th>";
  for (const double percent : report.options.percentiles) html += fmt::format("<th>{}</th>", percent_name(percent));
  html += "</tr>\n";
  for (const Metric metric : report.options.metrics) {
    const Statistics& values = report.summary.of(metric);
    html += fmt::format("<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>", title(metric), values.mean, values.median,
                        values.deviation);
    for (const auto& [percent, value] : values.percentiles) html += fmt::format("<td>{:.2f}</td>", value);
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string distributions(const Report& report) {
  std::string html = "<div class=\"plots\">\n";
  for (const Metric metric : report.options.metrics) {
    std::vector<double> values = values_ms(report.result.timelines, metric);
    if (values.empty()) continue;
    const std::size_t count = values.size();
    html += fmt::format("<figure><figcaption><b>{}</b>, ms ({} {})</figcaption>\n{}</figure>\n", title(metric),
                        grouped_count(static_cast<std::int64_t>(count)), metric == Metric::itl ? "gaps" : "requests",
                        distribution_svg(std::move(values), report.options.percentiles, title(metric)));
  }
  return html + "</div>\n<p class=\"quiet\">The line is the share that took no longer (left scale); bars show where the values lie.</p>\n";
}

std::string time_plots(const Report& report) {
  const Series series = over_time(report.result.timelines, report.summary.duration_s, steps_of(report.summary.duration_s));
  return fmt::format(
      "<div class=\"plots\">\n<figure><figcaption><b>requests running</b>, over seconds</figcaption>\n{}</figure>\n"
      "<figure><figcaption><b>output tokens a second</b>, over seconds</figcaption>\n{}</figure>\n</div>\n",
      series_svg(series.running, series.step_s, "requests running"),
      series_svg(series.output_tokens_per_s, series.step_s, "output tokens a second"));
}

std::string failure_table(const Summary& summary) {
  if (summary.failures.empty()) return "";
  std::string html = fmt::format("<h2 id=\"failures\">{} of {} requests failed</h2>\n", summary.failed, summary.planned);
  html += "<div class=\"scroll\"><table><tr><th>count</th><th>kind</th><th>HTTP status</th><th>message</th></tr>\n";
  for (const FailureGroup& group : summary.failures) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", group.count, describe(group.example.kind),
                        group.example.status == 0 ? "none" : fmt::format("{}", group.example.status), escaped(group.example.message));
  }
  return html + "</table></div>\n";
}

std::string settings_table(const Report& report) {
  std::string html = "<h2>Settings</h2>\n<div class=\"scroll\"><table>\n";
  for (const auto& [name, value] : load_settings(report)) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  }
  for (const GoodputTarget& target : report.options.goodput) {
    html += fmt::format("<tr><th>goodput</th><td>{} at most {} ms</td></tr>\n", name(target.metric), target.at_most_ms);
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string result_html(const Report& report) {
  const Summary& summary = report.summary;
  std::string html = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += fmt::format("<title>Load on {}</title>\n<style>{}</style>\n</head>\n<body>\n", escaped(report.options.model), kStyle);
  html += fmt::format("<h1>Load on {}</h1>\n<p class=\"quiet\">{}, {}</p>\n", escaped(report.options.model), escaped(report.options.url),
                      escaped(readable(report.date)));
  if (summary.failed > 0) {
    html += fmt::format("<p class=\"failed\">{} of {} requests failed; all numbers are of the {} completed ones only.</p>\n",
                        summary.failed, summary.planned, summary.completed);
  }
  html += cards(report) + failure_table(summary);
  html += "<h2>Latency</h2>\n" + latency_table(report) + "<h2>How the values spread</h2>\n" + distributions(report);
  html += "<h2>Over time</h2>\n" + time_plots(report) + settings_table(report);
  for (const std::string& note : result_notes(report)) html += fmt::format("<p class=\"quiet\">Note: {}.</p>\n", escaped(note));
  return html + "</body>\n</html>\n";
}

}  // namespace reckoner::loadgen
