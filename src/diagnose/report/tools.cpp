// What doctor and trace wrote, as statements. Fields that are not there are left out: the files may be of another version.
#include <fmt/format.h>

#include "diagnose/report/sections.h"

namespace reckoner::report {
namespace {

std::optional<JsonNode> field(const JsonNode& node, std::string_view name) {
  const auto found = node.optional(name);
  return found ? *found : std::nullopt;
}

std::string string_in(const JsonNode& node, std::string_view name) {
  const std::optional<JsonNode> found = field(node, name);
  const auto text = found ? found->as_string() : Result<std::string>(std::string());
  return text ? *text : "";
}

std::vector<std::string> strings_in(const JsonNode& node, std::string_view name) {
  std::vector<std::string> texts;
  const std::optional<JsonNode> list = field(node, name);
  const auto elements = list ? list->as_array() : Result<std::vector<JsonNode>>(std::vector<JsonNode>());
  if (!elements) return texts;
  for (const JsonNode& element : *elements) {
    if (auto text = element.as_string()) texts.push_back(*text);
  }
  return texts;
}

double number_in(const JsonNode& node, std::string_view name) {
  const std::optional<JsonNode> found = field(node, name);
  const auto number = found ? found->as_float() : Result<double>(0.0);
  return number ? *number : 0;
}

void add(Section& section, const ToolOutput& output, std::string text) {
  section.statements.push_back({std::move(text), {{output.path, output.path}}});
}

}  // namespace

void add_doctor(Section& section, const ToolOutput& doctor) {
  const JsonNode root = doctor.document.root();
  const std::string verdict = string_in(root, "verdict");
  if (!verdict.empty()) add(section, doctor, "The doctor's verdict: " + verdict + ".");
  if (const std::optional<JsonNode> memory = field(root, "memory")) {
    add(section, doctor,
        fmt::format("Memory that was predicted: {:.2f} GB of {:.2f} GB.", number_in(*memory, "total_bytes") / 1e9,
                    number_in(*memory, "available_bytes") / 1e9));
  }
  for (const std::string& problem : strings_in(root, "problems")) add(section, doctor, "A problem: " + problem);
  for (const std::string& doubt : strings_in(root, "doubts")) add(section, doctor, "A doubt: " + doubt);
}

void add_trace(Section& section, const ToolOutput& trace) {
  const JsonNode root = trace.document.root();
  const std::string verdict = string_in(root, "verdict");
  if (!verdict.empty()) add(section, trace, fmt::format("Trace of {}: {}.", string_in(root, "model"), verdict));
}

}  // namespace reckoner::report
