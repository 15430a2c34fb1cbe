#include "text/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "text/json_text.h"
#include "text/output_syntax.h"
#include "text/tool_schemas.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// White space between two parts of a JSON text. Without a bound a model can go on with it forever (bridge/src/grammar.rs has it too).
constexpr const char* kJsonSpace = R"([\x20\x0A\x0D\x09]{1,64})";

// A regular expression that matches the text alone.
std::string regex_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view(R"(\.+*?()|[]{}^$/)").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// A stretch of a mark: text, or a token that was added to the vocabulary, which no text of a grammar contains.
struct MarkPart {
  std::string text;  // empty: the token
  TokenId token = 0;
};

Result<std::vector<MarkPart>> parts_of(const Tokenizer& tokenizer, std::string_view mark) {
  const std::vector<TokenId> ids = TRY(tokenizer.encode(mark));
  std::vector<MarkPart> parts;
  for (const TokenId id : ids) {
    if (tokenizer.is_added(id)) {
      parts.push_back({.token = id});
      continue;
    }
    if (parts.empty() || parts.back().text.empty()) parts.push_back({});
    parts.back().text += TRY(tokenizer.piece(id));
  }
  return parts;
}

std::string joined(std::span<const MarkPart> parts) {
  std::string text;
  for (const MarkPart& part : parts) text += part.text.empty() ? fmt::format("<[{}]> ", part.token) : lark_text(part.text) + " ";
  return text;
}

// A property of a tool's arguments.
struct Argument {
  std::string name;
  JsonTypes types = JsonTypes::any;
  json::value schema;  // of this property alone, with the definitions that it may refer to
  bool required = false;
};

// The schema of arguments, and what it says of each.
struct Arguments {
  json::object schema;
  std::vector<Argument> list;
  bool open = true;  // it names none: any may be given
};

bool is_required(const json::object& schema, std::string_view name) {
  const json::value* const required = schema.if_contains("required");
  if (required == nullptr || !required->is_array()) return false;
  return std::any_of(required->get_array().begin(), required->get_array().end(),
                     [&](const json::value& one) { return one.is_string() && std::string_view(one.get_string()) == name; });
}

json::value with_definitions(json::value schema, const json::object& root) {
  if (!schema.is_object()) return schema;
  for (const char* key : {"$defs", "definitions"}) {
    if (const json::value* definitions = root.if_contains(key)) schema.get_object()[key] = *definitions;
  }
  return schema;
}

Result<Arguments> read_arguments(const ToolSignature& tool) {
  Arguments arguments;
  if (tool.parameters_json.empty()) return arguments;
  const JsonDocument document = TRY(parse_json(tool.parameters_json, fmt::format("the parameters of tool '{}'", tool.name)));
  if (!document.root().is_object()) return document.root().unexpected("a JSON schema, which is an object");
  arguments.schema = document.root().value().get_object();
  const json::value* const properties = arguments.schema.if_contains("properties");
  if (properties == nullptr || !properties->is_object()) return arguments;
  // An object without properties takes none, unless it says that it takes others.
  arguments.open = properties->get_object().empty() && arguments.schema.contains("additionalProperties") &&
                   arguments.schema.at("additionalProperties") != json::value(false);
  const ToolSchemas schemas =
      ToolSchemas::parse(json::serialize(json::array{json::object{{"name", tool.name}, {"parameters", document.root().value()}}}));
  for (const auto& [key, schema] : properties->get_object()) {
    const std::string name(key);
    arguments.list.push_back({.name = name,
                              .types = schemas.argument_types(tool.name, name),
                              .schema = with_definitions(schema, arguments.schema),
                              .required = is_required(arguments.schema, name)});
  }
  return arguments;
}

// The rule's right side for JSON of this schema.
std::string json_rule(json::value schema) {
  if (!schema.is_object() || schema.get_object().empty()) schema = json::object{{"type", "object"}};
  schema.get_object().emplace("x-guidance", json::object{{"whitespace_pattern", kJsonSpace}});
  return "%json " + json::serialize(schema);
}

// How many characters a string may have.
struct TextLength {
  std::int64_t min = 0;
  std::optional<std::int64_t> max = {};

  std::string max_text() const { return max ? std::to_string(*max) : std::string(); }
};

TextLength text_length(const json::value& schema) {
  constexpr std::int64_t kLongest = 4096;  // counting further would make the expression large
  const auto bound = [&](const char* key) -> std::optional<std::int64_t> {
    const json::value* const value = schema.is_object() ? schema.get_object().if_contains(key) : nullptr;
    if (value == nullptr || !value->is_int64() || value->get_int64() < 0 || value->get_int64() > kLongest) return std::nullopt;
    return value->get_int64();
  };
  TextLength length{.min = bound("minLength").value_or(0), .max = bound("maxLength")};
  if (length.max && *length.max < std::max<std::int64_t>(length.min, 1)) length.max = std::nullopt;
  return length;
}

// The strings of an enum or const that has nothing else.
std::vector<std::string> fixed_texts(const json::value& schema) {
  std::vector<std::string> texts;
  if (!schema.is_object()) return texts;
  json::array values;
  if (const json::value* fixed = schema.get_object().if_contains("const")) values.push_back(*fixed);
  if (const json::value* any = schema.get_object().if_contains("enum"); any != nullptr && any->is_array()) values = any->get_array();
  for (const json::value& value : values) {
    if (!value.is_string()) return {};
    texts.emplace_back(value.get_string());
  }
  return texts;
}

// One of the texts, of which one may be empty.
std::string alternatives(std::vector<std::string> texts) {
  const bool may_be_empty = std::erase(texts, "") > 0;
  return "(" + lark_choice(texts) + ")" + (may_be_empty ? "?" : "");
}

// Writes the rules of one grammar.
class CallWriter {
 public:
  CallWriter(const Tokenizer& tokenizer, OutputFormat format) : tokenizer_(tokenizer), format_(format), syntax_(call_syntax(format)) {}

  Result<std::string> write(const CallGrammarOptions& options) {
    std::string calls;
    for (std::size_t i = 0; i < options.tools.size(); ++i) {
      TRY(write_call(options.tools[i], i));
      calls += fmt::format("{}call_{}", i == 0 ? "" : " | ", i);
    }
    std::string start = fmt::format("NL? ({}) NL?", calls);
    start = options.count == CallCount::one_or_more ? "(" + start + ")+" : start;
    if (!syntax_.section_open.empty()) start = "NL? " + TRY(mark(syntax_.section_open)) + start + TRY(mark(syntax_.section_close));
    const std::string answer = options.answer.empty() ? "" : "| " + options.answer;
    return fmt::format("start: {} {}\nNL: /\\n{{1,2}}/\nKEY: /[^<>\"\\n]+/\n{}", start, answer, rules_);
  }

 private:
  Result<std::string> mark(std::string_view text) const {
    const std::vector<MarkPart> parts = TRY(parts_of(tokenizer_, text));
    return joined(parts);
  }

  void rule(const std::string& name, const std::string& right_side) { rules_ += fmt::format("{}: {}\n", name, right_side); }

  Status write_call(const ToolSignature& tool, std::size_t index) {
    const std::string name = fmt::format("call_{}", index);
    const Arguments arguments = TRY(read_arguments(tool));
    const std::string body = TRY(syntax_.has_parameters() ? write_parameters(arguments, name) : write_json_call(tool, arguments));
    const std::string open = TRY(mark(syntax_.call_open));
    const std::string close = TRY(mark(syntax_.call_close));
    const std::string head = syntax_.has_parameters() ? lark_text(tool.name) + " " + TRY(mark(head_end())) : "";
    rule(name, open + head + body + close);
    return {};
  }

  // What follows the name where arguments are text.
  std::string_view head_end() const { return format_ == OutputFormat::deepseek_v32 ? "\">" : ""; }

  // name<sep>{...}, function<sep>name and a fence, or functions.name:0<mark>{...}
  Result<std::string> write_json_call(const ToolSignature& tool, const Arguments& arguments) const {
    const std::string end = TRY(mark(syntax_.head_end));
    const std::string object = json_rule(arguments.schema);
    if (format_ == OutputFormat::kimi_k2) return fmt::format("/{}:[0-9]+/ {} {} ", regex_escaped("functions." + tool.name), end, object);
    const std::string fenced = fmt::format("\"function\" {} {} {} \"\\n```\" ", end, lark_text(tool.name + "\n```json\n"), object);
    return fmt::format("({} {} {} | {}) ", lark_text(tool.name), end, object, fenced);
  }

  Result<std::string> write_parameters(const Arguments& arguments, const std::string& call) {
    std::string body = "NL? ";
    for (std::size_t i = 0; i < arguments.list.size(); ++i) {
      const Argument& argument = arguments.list[i];
      const std::string name = fmt::format("{}_{}", call, i);
      rule(name, TRY(parameter(argument)));
      body += name + (argument.required ? " " : "? ");
    }
    if (!arguments.open) return body;
    rule(call + "_any", TRY(any_parameter()));
    return body + call + "_any* ";
  }

  // <arg_key>name</arg_key><arg_value>value</arg_value>, or DeepSeek's tags.
  Result<std::string> parameter(const Argument& argument) const {
    const bool is_text = allows(argument.types, JsonTypes::string);
    const std::string value =
        is_text ? TRY(text_value(argument.schema)) : json_rule(argument.schema) + " " + TRY(mark(syntax_.value_close));
    const std::string open = TRY(mark(syntax_.parameter_open));
    if (format_ == OutputFormat::deepseek_v32) {
      const std::string head = fmt::format("{}\" string=\"{}\">", argument.name, is_text ? "true" : "false");
      return open + TRY(mark(head)) + value + "NL? ";
    }
    return open + lark_text(argument.name) + " " + TRY(mark("</arg_key>")) + "NL? " + TRY(mark(syntax_.value_open)) + value + "NL? ";
  }

  Result<std::string> any_parameter() const {
    const std::string open = TRY(mark(syntax_.parameter_open));
    const std::string value = TRY(text_value({}));
    if (format_ == OutputFormat::deepseek_v32) return open + "KEY /\" string=\"(true|false)\">/ " + value + "NL? ";
    return open + "KEY " + TRY(mark("</arg_key>")) + "NL? " + TRY(mark(syntax_.value_open)) + value + "NL? ";
  }

  // Text as it is, up to the mark that ends a value.
  Result<std::string> text_value(const json::value& schema) const {
    const std::vector<MarkPart> close = TRY(parts_of(tokenizer_, syntax_.value_close));
    if (const std::vector<std::string> texts = fixed_texts(schema); !texts.empty()) return alternatives(texts) + " " + joined(close);
    const TextLength length = text_length(schema);
    if (close.front().text.empty()) {
      const std::string text = fmt::format("/(?s:.){{{},{}}}/", std::max<std::int64_t>(length.min, 1), length.max_text());
      return text + (length.min == 0 ? "? " : " ") + joined(close);
    }
    // The mark begins with plain text, which the expression would take for part of the value: both are one lexeme, and a token that
    // no text contains ends it.
    if (close.size() > 1) {
      return fmt::format("/(?s:.){{{},{}}}{}/ ", length.min, length.max_text(), regex_escaped(close.front().text)) +
             joined(std::span(close).subspan(1));
    }
    return Error{fmt::format("the tokenizer has no token for {}, so that nothing tells where an argument ends", syntax_.value_close),
                 "leave tool_choice at 'auto'"};
  }

  const Tokenizer& tokenizer_;
  OutputFormat format_;
  const CallSyntax& syntax_;
  std::string rules_;
};

}  // namespace

Result<std::string> call_grammar(const Tokenizer& tokenizer, const CallGrammarOptions& options) {
  CHECK(!options.tools.empty());
  if (call_syntax(options.format).call_open.empty())
    return Error{"this model has no form for tool calls", "use tool_choice 'none', or a model that calls tools"};
  return CallWriter(tokenizer, options.format).write(options);
}

std::string lark_text(std::string_view text) { return json_quoted(text); }

std::string lark_choice(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " | ") + lark_text(text);
  return all;
}

Result<std::string> lark_json(std::string_view schema) {
  if (schema.empty()) return json_rule({});
  const JsonDocument document = TRY(parse_json(schema, "JSON schema"));
  return json_rule(document.root().value());
}

}  // namespace reckoner
