#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
#include "diagnose/report/report.h"

namespace reckoner::report {
namespace {

constexpr std::string_view kStyle = R"(
.summary { background: var(--raised); border: 1px solid var(--line); border-left: 4px solid var(--accent); border-radius: 8px;
  padding: 0.6rem 1rem; margin: 1rem 0; }
.summary p { margin: 0.3rem 0; }
nav { font-size: 0.9rem; }
nav a { margin-right: 0.9rem; white-space: nowrap; }
li { margin: 0.35rem 0; overflow-wrap: anywhere; }
.evidence { font-size: 0.85rem; }
.evidence a { margin-right: 0.4rem; }
tr:target { outline: 2px solid var(--mark); }
td.pass { color: var(--good); }
td.fail { color: var(--bad); }
.good { fill: var(--good); }
.bad-bar { fill: var(--bad); }
svg text { font-size: 12px; fill: var(--text); }
figure { margin-top: 1rem; }
@media print { nav { display: none; } }
)";

// Only what a page may go to: a place in it, a file, a web page. A log cannot bring in another kind of address.
bool is_safe(std::string_view target) {
  if (target.empty()) return false;
  if (target.starts_with("#") || target.starts_with("https://") || target.starts_with("http://")) return true;
  const std::size_t colon = target.find(':');
  return colon == std::string_view::npos || target.substr(0, colon).find('/') != std::string_view::npos;
}

std::string link(const std::string& text, const std::string& target) {
  if (!is_safe(target)) return escape_html(text);
  return fmt::format("<a href=\"{}\">{}</a>", escape_html(target), escape_html(text));
}

std::string list_html(const Section& section) {
  if (section.statements.empty()) return "";
  const std::string_view tag = section.list == ListKind::numbers ? "ol" : "ul";
  std::string html = fmt::format("<{}>\n", tag);
  for (const Statement& statement : section.statements) {
    html += fmt::format("<li>{} <span class=\"evidence\">", escape_html(statement.text));
    for (const Link& one : statement.evidence) html += link(one.text, one.target) + " ";
    html += "</span></li>\n";
  }
  return html + fmt::format("</{}>\n", tag);
}

std::string_view css_of(const Section& section, std::size_t row, std::size_t column) {
  if (column >= section.table.header.size() || section.table.header[column] != "outcome" || row >= section.bars.size()) return "";
  return section.bars[row].good ? "pass" : "fail";
}

std::string table_html(const Section& section) {
  const Table& table = section.table;
  if (table.rows.empty()) return "";
  std::string html = html_scroll(section.title) + "<table><tr>";
  for (const std::string& name : table.header) html += fmt::format("<th scope=\"col\">{}</th>", escape_html(name));
  html += "</tr>\n";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    html += table.anchor.empty() ? "<tr>" : fmt::format("<tr id=\"{}-{}\">", table.anchor, row + 1);
    for (std::size_t i = 0; i < table.rows[row].size(); ++i) {
      const Cell& cell = table.rows[row][i];
      html += fmt::format("<td class=\"{}\">{}</td>", css_of(section, row, i), link(cell.text, cell.target));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

// How long each trial took, one bar below the other.
std::string bars_html(const std::vector<TrialBar>& bars) {
  if (bars.empty()) return "";
  constexpr int kRow = 20, kLeft = 70, kWidth = 640, kText = 260;
  double longest = 1e-9;
  for (const TrialBar& bar : bars) longest = std::max(longest, bar.seconds);
  const auto height = static_cast<int>(bars.size()) * kRow + 4;
  std::string html = fmt::format(
      "<figure><figcaption><b>Seconds of each trial</b>, stop included; green: passed, red: did not</figcaption>\n"
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Seconds of each trial\">\n",
      kLeft + kWidth + kText, height);
  int y = 2;
  for (const TrialBar& bar : bars) {
    const int width = std::max(2, static_cast<int>(bar.seconds / longest * kWidth));
    html += fmt::format(
        "<g><title>trial {}: {} ({})</title><text x=\"0\" y=\"{}\">trial {}</text><rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" "
        "height=\"{}\" rx=\"2\"/><text x=\"{}\" y=\"{}\">{:.1f} s, {}</text></g>\n",
        bar.number, escape_html(bar.outcome), escape_html(bar.label), y + 14, bar.number, bar.good ? "good" : "bad-bar", kLeft, y + 2,
        width, kRow - 5, kLeft + width + 6, y + 14, bar.seconds, escape_html(bar.outcome));
    y += kRow;
  }
  return html + "</svg></figure>\n";
}

std::string section_html(const Section& section) {
  std::string html = fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n", section.id, escape_html(section.title));
  if (!section.intro.empty()) html += fmt::format("<p class=\"quiet\">{}</p>\n", escape_html(section.intro));
  html += list_html(section) + table_html(section) + bars_html(section.bars);
  if (section.statements.empty() && section.table.rows.empty()) html += fmt::format("<p>{}</p>\n", escape_html(section.if_empty));
  return html + "</section>\n";
}

}  // namespace

std::string to_html(const Document& document) {
  std::string body = fmt::format("<h1>{}</h1>\n<p class=\"quiet\">{}</p>\n<main>\n<div class=\"summary\">\n", escape_html(document.title),
                                 escape_html(document.subtitle));
  for (const std::string& line : document.summary) body += fmt::format("<p>{}</p>\n", escape_html(line));
  body += "</div>\n<nav aria-label=\"Sections\">";
  for (const Section& section : document.sections) body += fmt::format("<a href=\"#{}\">{}</a> ", section.id, escape_html(section.title));
  body += "</nav>\n";
  for (const Section& section : document.sections) body += section_html(section);
  return html_page(document.title, body + "</main>\n", kStyle);
}

}  // namespace reckoner::report
