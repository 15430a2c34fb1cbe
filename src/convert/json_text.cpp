#include "convert/json_text.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

// The shortest text that is read back as the same double, and as a double: 1000000.0, 1e-05.
std::string double_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

void append(std::string& text, const json::value& value, const std::string& indent) {
  const std::string inner = indent + "  ";
  const char* separator = "\n";
  if (value.is_object() && !value.get_object().empty()) {
    text += "{";
    for (const auto& member : value.get_object()) {
      text += separator + inner + json::serialize(json::value(member.key())) + ": ";
      append(text, member.value(), inner);
      separator = ",\n";
    }
    text += "\n" + indent + "}";
  } else if (value.is_array() && !value.get_array().empty()) {
    text += "[";
    for (const json::value& element : value.get_array()) {
      text += separator + inner;
      append(text, element, inner);
      separator = ",\n";
    }
    text += "\n" + indent + "]";
  } else if (value.is_double()) {
    text += double_text(value.get_double());
  } else {
    text += json::serialize(value);
  }
}

}  // namespace

std::string json_text(const json::value& value) {
  std::string text;
  append(text, value, "");
  return text + "\n";
}

}  // namespace reckoner
