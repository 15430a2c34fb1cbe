// Grammars of calls: what they let through is what the parser reads back as calls of the tools.
#include "text/call_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "text/grammar.h"
#include "text/text_test_support.h"

namespace reckoner {
namespace {

const std::vector<ToolSignature> kTools = {
    {.name = "weather",
     .parameters_json =
         R"({"type":"object","properties":{"city":{"type":"string","maxLength":12},"days":{"type":"integer","minimum":1,"maximum":9},)"
         R"("unit":{"type":"string","enum":["C","F"]},"at":{"$ref":"#/$defs/Place"}},"required":["city","days"],"additionalProperties":false,)"
         R"("$defs":{"Place":{"type":"array","items":{"type":"integer","minimum":-5,"maximum":5},"minItems":2,"maxItems":2}}})"},
    {.name = "now", .parameters_json = R"({"type":"object","properties":{},"additionalProperties":false})"},
    {.name = "free", .parameters_json = ""}};
constexpr const char* kToolsJson =
    R"([{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
    R"("unit":{"type":"string"},"at":{"type":"array"}}}},{"name":"now","parameters":{"type":"object","properties":{}}},{"name":"free"}])";

struct Model {
  const char* name;
  OutputFormat format;
  Tokenizer tokenizer;
  std::vector<std::int32_t> ends;
};

// The pocket model's vocabulary with one more added token, in place of <eop>.
Tokenizer pocket_with_token(const std::string& token) {
  std::string text = read_file("models/pocket/tokenizer.json");
  for (std::size_t at = 0; (at = text.find("<eop>", at)) != std::string::npos;) text.replace(at, 5, token);
  return must(Tokenizer::from_memory(text));
}

Model glm() { return {"glm", OutputFormat::glm, pocket(), {4032, 4039, 4041}}; }
Model deepseek_v32() { return {"deepseek_v32", OutputFormat::deepseek_v32, pocket_with_token("｜DSML｜"), {4032}}; }
Model kimi() { return {"kimi", OutputFormat::kimi_k2, must(Tokenizer::load("tests/data/tokenizers/kimi")), {2258}}; }

class Walker {
 public:
  Walker(const Model& model, const CallGrammarOptions& options)
      : model_(model),
        vocab_(static_cast<std::int64_t>(model.tokenizer.vocab_size())),
        factory_(must(GrammarFactory::create(model.tokenizer, model.ends, vocab_))),
        text_(must(call_grammar(model.tokenizer, options))) {}

  bool takes(std::string_view text) {
    Grammar grammar = must(factory_.lark(text_));
    for (const TokenId id : must(model_.tokenizer.encode(text))) {
      if (!grammar.accept(id).ok()) return false;
    }
    return allowed(grammar, static_cast<TokenId>(model_.ends[0]));
  }

  // A text of tokens drawn from those allowed, with a liking for added ones, which end most things; none if it would not end.
  std::optional<std::string> draw(std::uint32_t seed) {
    std::mt19937 random(seed);
    Grammar grammar = must(factory_.lark(text_));
    std::vector<TokenId> ids;
    for (int step = 0; step < 400; ++step) {
      std::vector<TokenId> choices, added;
      mask_of(grammar);
      for (TokenId id = 0; id < vocab_; ++id) {
        if (!bit(id)) continue;
        choices.push_back(id);
        if (model_.tokenizer.is_added(id)) added.push_back(id);
      }
      if (choices.empty()) {
        ADD_FAILURE() << "nothing is allowed after " << must(model_.tokenizer.decode(ids));
        return std::nullopt;
      }
      const std::vector<TokenId>& from = !added.empty() && random() % 2 == 0 ? added : choices;
      const TokenId id = from[random() % from.size()];
      if (std::find(model_.ends.begin(), model_.ends.end(), static_cast<std::int32_t>(id)) != model_.ends.end())
        return must(model_.tokenizer.decode(ids));
      EXPECT_TRUE(grammar.accept(id).ok());
      ids.push_back(id);
      if (grammar.finished()) return must(model_.tokenizer.decode(ids));
    }
    return std::nullopt;
  }

 private:
  void mask_of(Grammar& grammar) {
    mask_.assign(static_cast<std::size_t>(vocab_ + 31) / 32, 0);
    ASSERT_TRUE(grammar.compute_mask(mask_).ok());
  }
  bool bit(TokenId id) const { return (mask_[id / 32] >> (id % 32) & 1u) != 0; }
  bool allowed(Grammar& grammar, TokenId id) {
    mask_of(grammar);
    return bit(id);
  }

  const Model& model_;
  std::int64_t vocab_;
  GrammarFactory factory_;
  std::string text_;
  std::vector<std::uint32_t> mask_;
};

struct Call {
  std::string name, arguments;
};
struct Output {
  std::string content;
  std::vector<Call> calls;
};
Output read_output(OutputFormat format, std::string_view text) {
  OutputParser parser = OutputParser::open({.format = format, .tools_json = kToolsJson});
  Output output;
  for (OutputDelta delta : {parser.push(text), parser.finish()}) {
    output.content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index >= output.calls.size()) output.calls.resize(call.index + 1);
      output.calls[call.index].name += call.name;
      output.calls[call.index].arguments += call.arguments;
    }
  }
  return output;
}

// As kTools says, checked by hand.
void expect_fits(const Call& call) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(call.arguments, error);
  ASSERT_FALSE(error) << call.arguments;
  ASSERT_TRUE(value.is_object()) << call.arguments;
  const boost::json::object& arguments = value.get_object();
  if (call.name == "now") { EXPECT_TRUE(arguments.empty()) << call.arguments; }
  if (call.name != "weather") return;
  ASSERT_TRUE(arguments.contains("city") && arguments.contains("days")) << call.arguments;
  ASSERT_TRUE(arguments.at("city").is_string()) << call.arguments;
  ASSERT_TRUE(arguments.at("days").is_int64()) << call.arguments;
  EXPECT_TRUE(arguments.at("days").get_int64() >= 1 && arguments.at("days").get_int64() <= 9) << call.arguments;
  if (arguments.contains("unit")) { EXPECT_TRUE(arguments.at("unit") == "C" || arguments.at("unit") == "F") << call.arguments; }
  if (arguments.contains("at")) { EXPECT_EQ(arguments.at("at").as_array().size(), 2u) << call.arguments; }
}

void expect_calls_only(const Model& model) {
  // Any JSON at all includes numbers and escapes that no reader takes: the tool without a schema is left to the formats with text.
  const std::span<const ToolSignature> tools = std::span(kTools).first(model.format == OutputFormat::kimi_k2 ? 2 : 3);
  Walker walker(model, {.format = model.format, .tools = tools});
  std::set<std::string> called;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const std::optional<std::string> text = walker.draw(seed);
    if (!text) continue;
    const Output output = read_output(model.format, *text);
    ASSERT_GE(output.calls.size(), 1u) << model.name << ": " << *text;
    EXPECT_EQ(output.content.find_first_not_of('\n'), std::string::npos) << model.name << ": " << *text;
    for (const Call& call : output.calls) {
      called.insert(call.name);
      expect_fits(call);
    }
  }
  EXPECT_TRUE(called.contains("weather") && called.contains("now")) << model.name;
}

TEST(CallGrammar, LetsNothingButCallsThrough) {
  expect_calls_only(glm());
  expect_calls_only(deepseek_v32());
  expect_calls_only(kimi());
}

TEST(CallGrammar, TakesCallsAsGlmWritesThem) {
  const Model model = glm();
  Walker walker(model, {.format = model.format, .tools = kTools});
  EXPECT_TRUE(walker.takes("<tool_call>now</tool_call>"));
  EXPECT_TRUE(
      walker.takes("<tool_call>weather<arg_key>city</arg_key><arg_value>Köln <b>\n</arg_value>"
                   "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"));
  EXPECT_TRUE(
      walker.takes("\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value></arg_value>\n<arg_key>days</arg_key>\n"
                   "<arg_value>3</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>F</arg_value>\n</tool_call>\n"
                   "<tool_call>free\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"));
  EXPECT_FALSE(
      walker.takes("<tool_call>weather<arg_key>city</arg_key><arg_value>thirteen char</arg_value>"  // 12 are allowed
                   "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"));
  EXPECT_FALSE(walker.takes(""));
  EXPECT_FALSE(walker.takes("Sure. <tool_call>now</tool_call>"));
  EXPECT_FALSE(walker.takes("<tool_call>then</tool_call>"));
  EXPECT_FALSE(walker.takes("<tool_call>weather</tool_call>"));  // what is required is missing
  EXPECT_FALSE(walker.takes("<tool_call>now<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"));
}

TEST(CallGrammar, TakesCallsAsDeepseekWritesThem) {
  const Model model = deepseek_v32();
  Walker walker(model, {.format = model.format, .tools = kTools});
  EXPECT_TRUE(
      walker.takes("\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
                   "string=\"true\">A </b></｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2"
                   "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"));
  EXPECT_FALSE(walker.takes("<｜DSML｜function_calls>\n</｜DSML｜function_calls>"));
}

TEST(CallGrammar, TakesCallsAsKimiWritesThem) {
  const Model model = kimi();
  Walker walker(model, {.format = model.format, .tools = kTools});
  EXPECT_TRUE(
      walker.takes("<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
                   "{\"city\": \"a\", \"days\": 3}<|tool_call_end|><|tool_calls_section_end|>"));
  EXPECT_FALSE(
      walker.takes("<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
                   "{\"city\": 1}<|tool_call_end|><|tool_calls_section_end|>"));
}

TEST(CallGrammar, OneCallMeansOne) {
  const Model model = glm();
  Walker walker(model, {.format = model.format, .tools = kTools, .count = CallCount::one});
  EXPECT_TRUE(walker.takes("<tool_call>now</tool_call>"));
  EXPECT_FALSE(walker.takes("<tool_call>now</tool_call><tool_call>now</tool_call>"));
}

TEST(CallGrammar, AnAnswerMayStandInPlaceOfCalls) {
  const Model model = glm();
  Walker walker(model, {.format = model.format,
                        .tools = kTools,
                        .answer = must(lark_json(R"({"type":"object","properties":{"a":{"type":"integer"}},)"
                                                 R"("required":["a"],"additionalProperties":false})"))});
  EXPECT_TRUE(walker.takes("<tool_call>now</tool_call>"));
  EXPECT_TRUE(walker.takes(R"({"a": 1})"));
  EXPECT_FALSE(walker.takes(R"({"b": 1})"));
  EXPECT_FALSE(walker.takes("hello"));
}

TEST(CallGrammar, SaysWhatItCannotDo) {
  const Tokenizer tokenizer = pocket();
  const auto error = [&](OutputFormat format, const ToolSignature& tool) {
    const Result<std::string> grammar = call_grammar(tokenizer, {.format = format, .tools = {&tool, 1}});
    return grammar ? std::string() : grammar.error().what;
  };
  EXPECT_NE(error(OutputFormat::plain, kTools[1]).find("no form for tool calls"), std::string::npos);
  EXPECT_NE(error(OutputFormat::glm, {.name = "t", .parameters_json = "[]"}).find("the parameters of tool 't'"), std::string::npos);
  // Without the token nothing but text ends a value.
  EXPECT_NE(error(OutputFormat::deepseek_v32, kTools[0]).find("no token for"), std::string::npos);
}

}  // namespace
}  // namespace reckoner
