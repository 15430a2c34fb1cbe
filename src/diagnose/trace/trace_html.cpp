#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/html.h"
#include "diagnose/trace/trace_report.h"

namespace reckoner::trace {
namespace {

constexpr std::string_view kStyle = R"(
:root { --none: #efece6; --low: #dcebf3; --high: #08456b; --low-error: #f7ead9; --high-error: #8a2f08; }
@media (prefers-color-scheme: dark) {
  :root { --none: #26282b; --low: #1d3340; --high: #9fdcff; --low-error: #3a2a1a; --high-error: #ffb27a; }
}
body { max-width: 80rem; }
.verdict { border: 1px solid var(--line); border-left: 4px solid var(--accent); border-radius: 6px; background: var(--raised);
  padding: 0.6rem 0.8rem; overflow-wrap: anywhere; }
.verdict.bad { border-color: var(--bad); color: var(--bad); }
.map { border-spacing: 2px; border-collapse: separate; font-size: 0.8rem; }
.map th, .map td { border: 0; padding: 0; }
.map thead th { text-align: center; font-variant-numeric: tabular-nums; }
.map tbody th { text-align: right; padding-right: 0.6rem; white-space: nowrap; position: sticky; left: 0; background: var(--ground); }
.map td { width: 2.1rem; min-width: 1.3rem; height: 1.35rem; border-radius: 3px; background: var(--none); }
.map td[data-t]:not(.zero, .bad) { background: color-mix(in oklab, var(--low), var(--high) var(--at)); cursor: default; }
.errors td[data-t]:not(.zero, .bad) { background: color-mix(in oklab, var(--low-error), var(--high-error) var(--at)); }
.map thead td, .map td.zero { background: none; }
.map td.zero { outline: 1px dashed var(--line); outline-offset: -1px; }
.map td.bad { background: repeating-linear-gradient(45deg, var(--bad) 0 4px, var(--raised) 4px 7px); outline: 2px solid var(--bad); }
.map td:focus-visible, .map td:hover { outline: 3px solid var(--accent); outline-offset: 1px; }
.readout { position: sticky; bottom: 0; background: var(--raised); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.4rem 0.8rem; margin-top: 0.6rem; min-height: 2.3rem; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; align-items: center; gap: 0.5rem; font-size: 0.85rem; color: var(--quiet); margin: 0.5rem 0; }
.ramp { width: 12rem; height: 0.9rem; border-radius: 3px; background: linear-gradient(in oklab to right, var(--low), var(--high)); }
.ramp.errors { background: linear-gradient(in oklab to right, var(--low-error), var(--high-error)); }
.swatch { width: 1.6rem; height: 0.9rem; border-radius: 3px; display: inline-block; }
.swatch.bad { background: repeating-linear-gradient(45deg, var(--bad) 0 4px, var(--raised) 4px 7px); outline: 1px solid var(--bad); }
.swatch.zero { outline: 1px dashed var(--quiet); outline-offset: -1px; }
.swatch.none { background: var(--none); outline: 1px solid var(--line); }
)";

// Moves between cells with the arrow keys; shows the cell's numbers.
constexpr std::string_view kScript = R"(
for (const map of document.querySelectorAll('.map')) {
  const readout = document.getElementById(map.dataset.readout);
  const show = cell => { if (cell && cell.dataset.t) readout.textContent = cell.dataset.t; };
  map.addEventListener('mouseover', event => show(event.target.closest('td')));
  map.addEventListener('focusin', event => show(event.target.closest('td')));
  map.addEventListener('keydown', event => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const cell = event.target.closest('td');
    if (!step || !cell) return;
    event.preventDefault();
    const rows = [...map.tBodies[0].rows];
    const row = rows.indexOf(cell.parentNode) + step[0];
    // In another row the nearest cell with numbers: a row may have none in this column.
    const filled = [...(rows[row]?.cells ?? [])].filter(one => one.dataset.t);
    const distance = one => Math.abs(one.cellIndex - cell.cellIndex);
    const next = step[0]
      ? filled.sort((one, other) => distance(one) - distance(other))[0]
      : filled.filter(one => (one.cellIndex - cell.cellIndex) * step[1] > 0).sort((one, other) => distance(one) - distance(other))[0];
    if (!next) return;
    cell.tabIndex = -1; next.tabIndex = 0; next.focus();
  });
}
)";

// A row of the map: the same call in every layer that has it.
struct MapRow {
  std::string label;
  std::map<std::int64_t, const CallSummary*> cells;  // by layer
};

// Layers lie beside each other; what stands outside of them takes a column before and one behind.
constexpr std::int64_t kBefore = -1;

struct MapShape {
  std::vector<MapRow> rows;
  std::int64_t layers = 0;
};

MapShape shape_of(const TraceReport& report) {
  MapShape shape;
  for (const CallSummary& call : report.calls) shape.layers = std::max(shape.layers, call.name.layer + 1);
  std::size_t at = 0;  // rows keep the order of a step, though layers differ in what they have
  for (const CallSummary& call : report.calls) {
    const std::string label = call.name.block + ": " + call.name.short_text();
    const auto known = std::find_if(shape.rows.begin(), shape.rows.end(), [&](const MapRow& row) { return row.label == label; });
    if (known != shape.rows.end()) {
      known->cells[call.name.layer] = &call;
      at = static_cast<std::size_t>(known - shape.rows.begin()) + 1;
      continue;
    }
    if (call.name.block == "head") at = shape.rows.size();
    const std::int64_t column = call.name.layer >= 0 ? call.name.layer : call.name.block == "head" ? shape.layers : kBefore;
    shape.rows.insert(shape.rows.begin() + static_cast<std::ptrdiff_t>(at), {.label = label, .cells = {{column, &call}}});
    ++at;
  }
  return shape;
}

std::string short_number(double value) { return std::isfinite(value) ? fmt::format("{:.3g}", value) : "none"; }

std::string numbers_of(const CallSummary& call) {
  std::string text =
      fmt::format("{}: min {}, max {}, rms {}, not finite {} of {}", call.name.text(), short_number(call.output.low),
                  short_number(call.output.high), short_number(call.output.rms()), call.output.non_finite, call.output.count);
  if (const std::optional<double> error = call.error()) text += fmt::format(", error to exact {:.2e}", *error);
  return text + fmt::format(" ({})", call.kernel);
}

// What a map shows of a call, as a logarithm; nothing where it has no such value.
using Level = std::function<std::optional<double>(const CallSummary& call)>;

std::optional<double> rms_level(const CallSummary& call) {
  return call.output.rms() > 0 ? std::optional(std::log10(call.output.rms())) : std::nullopt;
}
std::optional<double> error_level(const CallSummary& call) {
  const std::optional<double> error = call.error();
  return error && *error > 0 ? std::optional(std::log10(*error)) : std::nullopt;
}

struct Range {
  double low = 0;
  double high = 0;
};
std::optional<Range> range_of(const TraceReport& report, const Level& level) {
  std::optional<Range> range;
  for (const CallSummary& call : report.calls) {
    const std::optional<double> here = level(call);
    if (!here) continue;
    if (!range) range = Range{*here, *here};
    range->low = std::min(range->low, *here);
    range->high = std::max(range->high, *here);
  }
  return range;
}

std::string cell_html(const CallSummary* call, const Level& level, const Range& range, bool& first) {
  if (call == nullptr) return "<td></td>";
  const std::optional<double> here = level(*call);
  const double at = here && range.high > range.low ? (*here - range.low) / (range.high - range.low) * 100 : 0;
  const std::string numbers = escape_html(numbers_of(*call));
  const std::string css = call->output.non_finite > 0 ? " class=\"bad\"" : here ? "" : " class=\"zero\"";
  const int tab = first ? 0 : -1;
  first = false;
  return fmt::format("<td tabindex=\"{}\"{} style=\"--at:{:.0f}%\" data-t=\"{}\" aria-label=\"{}\"></td>", tab, css, at, numbers, numbers);
}

std::string map_html(const TraceReport& report, const Level& level, std::string_view kind, std::string_view title) {
  const MapShape shape = shape_of(report);
  const Range range = range_of(report, level).value_or(Range{});
  std::string html =
      fmt::format("<div class=\"legend\"><span>logarithmic:</span><span>{:.1e}</span><span class=\"ramp {}\"></span><span>{:.1e}</span>",
                  std::pow(10, range.low), kind, std::pow(10, range.high));
  html += "<span class=\"swatch bad\"></span><span>has values that are not finite</span>";
  html += "<span class=\"swatch none\"></span><span>not in this layer</span>";
  html += "<span class=\"swatch zero\"></span><span>zero, or no numbers</span></div>\n";
  html += html_scroll(title) +
          fmt::format("<table class=\"map {}\" data-readout=\"readout-{}\" aria-label=\"{}\">\n<thead><tr><td></td>", kind, kind, title);
  html += "<th scope=\"col\">in</th>";
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) html += fmt::format("<th scope=\"col\">{}</th>", layer);
  html += "<th scope=\"col\">out</th></tr></thead>\n<tbody>\n";
  bool first = true;
  for (const MapRow& row : shape.rows) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", escape_html(row.label));
    for (std::int64_t column = kBefore; column <= shape.layers; ++column) {
      const auto cell = row.cells.find(column);
      html += cell_html(cell == row.cells.end() ? nullptr : cell->second, level, range, first);
    }
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  html += fmt::format(
      "<p class=\"readout\" id=\"readout-{}\" aria-live=\"polite\">Point at a cell, or move between cells with the arrow "
      "keys: its numbers stand here.</p>\n",
      kind);
  return html;
}

std::string routers_html(const TraceReport& report) {
  if (report.routers.empty()) return "";
  std::string html =
      "<h2>Routers</h2>\n<p class=\"quiet\">Evenness is 1 where all experts are chosen alike. Rerouted tokens go to other experts than in "
      "exact.</p>\n" +
      html_scroll("Routers") +
      "<table class=\"numbers\"><tr><th>layer</th><th>experts</th><th>evenness</th><th>most chosen</th>"
      "<th>never chosen</th><th>rerouted</th></tr>\n";
  for (const RouterBalance& router : report.routers) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.1f} %</td><td>{}</td><td>{}</td></tr>\n", router.layer,
                        router.chosen.size(), router.entropy(), 100 * router.max_share(), router.idle(),
                        report.compared_exact ? fmt::format("{} of {}", router.rerouted, router.tokens) : "not compared");
  }
  return html + "</table></div>\n";
}

std::string selections_html(const TraceReport& report) {
  std::string rows;
  for (const SelectionQuality& quality : report.selections) {
    if (quality.rows == 0) continue;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.1f} %</td><td>{:.1f} %</td></tr>\n", quality.layer, quality.rows,
                        100 * quality.mean_kept(), 100 * quality.least_kept);
  }
  if (rows.empty()) return "";
  return "<h2>Selections</h2>\n<p class=\"quiet\">Of the tokens with more positions than may be selected: how much of the attention that "
         "looks at everything falls on what was selected.</p>\n" +
         html_scroll("Selections") +
         "<table class=\"numbers\"><tr><th>layer</th>"
         "<th>tokens</th><th>attention kept</th><th>least of a token</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string against_html(const AgainstReport& against) {
  std::string html = fmt::format(
      "<h2>Against the dump</h2>\n<p class=\"quiet\">Rows may differ by {:.1e} of their rms.</p>\n{}<table class="
      "\"numbers\"><tr><th>theirs</th><th>ours</th><th>rows</th><th>error</th><th>worst row</th></tr>\n",
      against.tolerance, html_scroll("Against the dump"));
  for (const AlignedValue& value : against.aligned) {
    html += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{:.1e}</td><td>{:.1e} (row {})</td></tr>\n",
                        value.beyond ? " style=\"color:var(--bad)\"" : "", escape_html(value.theirs), escape_html(value.ours), value.rows,
                        value.error, value.worst, value.worst_row);
  }
  html += "</table></div>\n";
  for (const std::string& name : against.unmatched) html += fmt::format("<p class=\"quiet\">Not matched: {}</p>\n", escape_html(name));
  return html;
}

}  // namespace

std::string trace_html(const TraceFacts& facts, const TraceReport& report, const AgainstReport* against) {
  const bool bad = report.origin || report.wrong || (against != nullptr && against->first);
  std::string html = "<main>\n";
  html += fmt::format("<h1>Trace of {}</h1>\n<p class=\"quiet\">{}, {}; {} tokens of prompt, {} generated, {} steps; Reckoner {}</p>\n",
                      escape_html(facts.model), escape_html(facts.device), escape_html(facts.precision), report.prompt_tokens,
                      report.generated.size(), report.steps, escape_html(facts.version));
  html += fmt::format("<p class=\"verdict{}\">{}</p>\n", bad ? " bad" : "", escape_html(verdict_of(report, against)));
  html +=
      "<h2>How large the values are: rms of what each op writes</h2>\n"
      "<p class=\"quiet\">Of a norm: the residual stream that it reads.</p>\n" +
      map_html(report, rms_level, "values", "rms by layer and op");
  if (report.compared_exact) {
    html += "<h2>Where precision is lost: error to exact, relative</h2>\n" +
            map_html(report, error_level, "errors", "error to exact by layer and op");
  }
  html += routers_html(report) + selections_html(report);
  if (against != nullptr) html += against_html(*against);
  return html_page("Trace of " + facts.model, html + fmt::format("</main>\n<script>{}</script>\n", kScript), kStyle);
}

}  // namespace reckoner::trace
