// What doctor and trace wrote, as statements.
#include "diagnose/report/sections.h"

namespace reckoner::report {
namespace {

// The strings of the array `field`, if it is there.
std::vector<std::string> strings_of(const ToolOutput& output, std::string_view field) {
  std::vector<std::string> texts;
  const auto list = output.document.root().optional(field);
  if (!list || !*list) return texts;
  const auto elements = (*list)->as_array();
  if (!elements) return texts;
  for (const JsonNode& element : *elements) {
    if (auto text = element.as_string()) texts.push_back(*text);
  }
  return texts;
}

void add_summary(Section& section, const ToolOutput& output, std::string_view tool) {
  for (const std::string& text : strings_of(output, "summary"))
    section.statements.push_back({std::string(tool) + ": " + text, {{output.path, output.path}}});
}

}  // namespace

void add_doctor(Section& section, const ToolOutput& doctor) { add_summary(section, doctor, "doctor"); }
void add_trace(Section& section, const ToolOutput& trace) { add_summary(section, trace, "trace"); }

}  // namespace reckoner::report
