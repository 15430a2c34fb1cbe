#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
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
  std::string html = html_scroll("Latency") + "<table class=\"numbers\"><tr><th>milliseconds</th><th>mean</th><th>median</th><th>std</th>";
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
  html += html_scroll("Failures") + "<table><tr><th>count</th><th>kind</th><th>HTTP status</th><th>message</th></tr>\n";
  for (const FailureGroup& group : summary.failures) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", group.count, describe(group.example.kind),
                        group.example.status == 0 ? "none" : fmt::format("{}", group.example.status), escape_html(group.example.message));
  }
  return html + "</table></div>\n";
}

std::string settings_table(const Report& report) {
  std::string html = "<h2>Settings</h2>\n" + html_scroll("Settings") + "<table>\n";
  for (const auto& [name, value] : load_settings(report)) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  }
  for (const GoodputTarget& target : report.options.goodput) {
    html += fmt::format("<tr><th>goodput</th><td>{} at most {} ms</td></tr>\n", name(target.metric), target.at_most_ms);
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string result_html(const Report& report) {
  const Summary& summary = report.summary;
  const std::string title = "Load on " + report.options.model;
  std::string html;
  html += fmt::format("<h1>{}</h1>\n<p class=\"quiet\">{}, {}</p>\n", escape_html(title), escape_html(report.options.url),
                      escape_html(readable(report.date)));
  if (summary.failed > 0) {
    html += fmt::format("<p class=\"failed\">{} of {} requests failed; all numbers are of the {} completed ones only.</p>\n",
                        summary.failed, summary.planned, summary.completed);
  }
  html += cards(report) + failure_table(summary);
  html += "<h2>Latency</h2>\n" + latency_table(report) + "<h2>How the values spread</h2>\n" + distributions(report);
  html += "<h2>Over time</h2>\n" + time_plots(report) + settings_table(report);
  for (const std::string& note : result_notes(report)) html += fmt::format("<p class=\"quiet\">Note: {}.</p>\n", escape_html(note));
  return html_page(title, html);
}

}  // namespace reckoner::loadgen
