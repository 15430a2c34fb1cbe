#include "text/json_text.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value.hpp>
#include <cstdint>

#include "base/json.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// Boost's parser wants somebody to talk to.
struct Listener {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return true; }
  bool on_object_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_key(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

json::parse_options limits() {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  return options;
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out += '"';
}

bool is_json(std::string_view text) {
  json::basic_parser<Listener> parser(limits());
  json::error_code error;
  return parser.write_some(false, text.data(), text.size(), error) == text.size() && !error;
}

struct JsonPrefix::Parser {
  json::basic_parser<Listener> parser{limits()};
  bool begun = false;
};

JsonPrefix::JsonPrefix() : parser_(std::make_unique<Parser>()) {}
JsonPrefix::JsonPrefix(JsonPrefix&&) noexcept = default;
JsonPrefix& JsonPrefix::operator=(JsonPrefix&&) noexcept = default;
JsonPrefix::~JsonPrefix() = default;

bool JsonPrefix::push(char byte) {
  if (!parser_->begun && byte != '{') return false;
  parser_->begun = true;
  json::error_code error;
  return parser_->parser.write_some(true, &byte, 1, error) == 1 && !error;
}

bool JsonPrefix::complete() const { return parser_->parser.done(); }

}  // namespace reckoner
