// What a request's tools say of their arguments, for formats that write arguments as text.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <string_view>

namespace reckoner {

// The JSON types that a schema allows, as a set of bits.
enum class JsonTypes : unsigned {
  none = 0,
  string = 1,
  number = 2,  // integers too: their text is the same
  boolean = 4,
  object = 8,
  array = 16,
  null = 32,
  any = 63,
};
constexpr JsonTypes operator|(JsonTypes a, JsonTypes b) {
  return static_cast<JsonTypes>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr JsonTypes operator&(JsonTypes a, JsonTypes b) {
  return static_cast<JsonTypes>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr bool allows(JsonTypes types, JsonTypes type) { return (types & type) != JsonTypes::none; }

class ToolSchemas {
 public:
  // Tools as in OpenAI's chat API; also the flat form of its responses API and Anthropic's. What does not fit is left out: whoever
  // takes the request checks it.
  static ToolSchemas parse(std::string_view tools_json);

  bool has(std::string_view tool) const { return parameters_.find(tool) != parameters_.end(); }
  // The request named tools, whether they could be read or not.
  bool given() const { return given_; }
  // string for an unknown tool; any where the schema does not say.
  JsonTypes argument_types(std::string_view tool, std::string_view argument) const;

 private:
  bool given_ = false;
  std::map<std::string, boost::json::value, std::less<>> parameters_;  // by tool: the schema of its arguments
};

// Whether `raw`, the beginning of an argument's text, may still become JSON of one of the types. Not asked for types without string.
bool may_become_json(JsonTypes types, std::string_view raw);

// How strings are written: as they are, or as JSON.
enum class Strings { raw, quoted };

// An argument's text as JSON: what was written if that is JSON, else a string. Where a string is allowed and is written raw, only JSON
// of the other allowed types counts.
std::string argument_json(JsonTypes types, std::string_view raw, Strings strings);

}  // namespace reckoner
