#include <fmt/format.h>

#include "diagnose/report/report.h"

namespace reckoner::report {
namespace {

// Log lines and names as they are: none of their characters may become markup.
std::string plain(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      safe += ' ';
      continue;
    }
    if (std::string_view("\\`*_[]<>|#").find(c) != std::string_view::npos) safe += '\\';
    safe += c;
  }
  return safe;
}

std::string link(const Link& link) {
  // A target in angle brackets may hold spaces and round brackets.
  return link.target.empty() ? plain(link.text) : fmt::format("[{}](<{}>)", plain(link.text), link.target);
}

std::string evidence_text(const std::vector<Link>& evidence) {
  std::string text;
  for (const Link& one : evidence) text += (text.empty() ? "" : ", ") + link(one);
  return text;
}

std::string table_text(const Table& table) {
  if (table.rows.empty()) return "";
  std::string text = "|";
  for (const std::string& name : table.header) text += fmt::format(" {} |", plain(name));
  text += "\n|";
  for (std::size_t i = 0; i < table.header.size(); ++i) text += "---|";
  text += "\n";
  std::int64_t number = 0;
  for (const std::vector<Cell>& row : table.rows) {
    ++number;
    text += "|";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string anchor = i == 0 && !table.anchor.empty() ? fmt::format("<a id=\"{}-{}\"></a>", table.anchor, number) : "";
      text += fmt::format(" {}{} |", anchor, link({row[i].text, row[i].target}));
    }
    text += "\n";
  }
  return text + "\n";
}

std::string section_text(const Section& section) {
  std::string text = fmt::format("## {}\n\n", section.title);
  if (!section.intro.empty()) text += plain(section.intro) + "\n\n";
  std::int64_t number = 0;
  for (const Statement& statement : section.statements) {
    const std::string mark = section.list == ListKind::numbers ? fmt::format("{}.", ++number) : "-";
    text += fmt::format("{} {} ({})\n", mark, plain(statement.text), evidence_text(statement.evidence));
  }
  if (!section.statements.empty()) text += "\n";
  text += table_text(section.table);
  if (section.statements.empty() && section.table.rows.empty()) text += section.if_empty + "\n\n";
  return text;
}

}  // namespace

std::string to_markdown(const Document& document) {
  std::string text = fmt::format("# {}\n\n{}\n\n", plain(document.title), plain(document.subtitle));
  for (const std::string& line : document.summary) text += fmt::format("**{}**  \n", plain(line));
  text += "\n";
  for (const Section& section : document.sections) text += section_text(section);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace reckoner::report
