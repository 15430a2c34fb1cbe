#include "server/answer_constraint.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace reckoner {
namespace {

// Where the answer begins: at once, behind reasoning that the prompt opened, or behind reasoning that the model may open itself.
enum class Thinking { none, open, possible };

struct Thought {
  Thinking state = Thinking::none;
  std::int32_t open_token = -1;
  std::int32_t close_token = -1;
  std::vector<std::int32_t> end_tokens = {};  // not while it thinks: no answer would follow
};

void set_bit(std::span<std::uint32_t> bits, std::int32_t token, bool on) {
  const auto index = static_cast<std::size_t>(token);
  if (token < 0 || index / 32 >= bits.size()) return;
  const std::uint32_t bit = 1u << (index % 32);
  bits[index / 32] = on ? bits[index / 32] | bit : bits[index / 32] & ~bit;
}

class GrammarAfterThought : public TokenConstraint {
 public:
  GrammarAfterThought(Grammar grammar, Thought thought, std::int64_t vocab)
      : grammar_(std::move(grammar)), thought_(std::move(thought)), vocab_(vocab) {}

  void compute_mask(std::span<std::uint32_t> bits) override {
    if (thought_.state == Thinking::open) return allow_thought(bits);
    // A grammar that cannot go on allows nothing, which ends the request with an error.
    if (!grammar_.compute_mask(bits)) std::fill(bits.begin(), bits.end(), 0u);
    if (thought_.state == Thinking::possible) set_bit(bits, thought_.open_token, true);
  }

  bool accept(std::int32_t token) override {
    if (thought_.state == Thinking::open) {
      if (token == thought_.close_token) thought_.state = Thinking::none;
      return true;
    }
    const bool opens = thought_.state == Thinking::possible && token == thought_.open_token;
    thought_.state = opens ? Thinking::open : Thinking::none;
    return opens || grammar_.accept(static_cast<TokenId>(token)).ok();
  }

  bool finished() override { return thought_.state != Thinking::open && grammar_.finished(); }

 private:
  void allow_thought(std::span<std::uint32_t> bits) const {
    std::fill(bits.begin(), bits.end(), ~0u);
    for (std::int64_t token = vocab_; token < static_cast<std::int64_t>(bits.size()) * 32; ++token)
      set_bit(bits, static_cast<std::int32_t>(token), false);
    for (const std::int32_t token : thought_.end_tokens) set_bit(bits, token, false);
  }

  Grammar grammar_;
  Thought thought_;
  std::int64_t vocab_;
};

Result<Thought> thought_after(const Service& service, const std::optional<std::string_view>& prompt) {
  if (!prompt) return Thought{};
  const auto id = [&](std::string_view text) {
    const std::optional<TokenId> token = service.tokenizer.token_id(text);
    return token ? static_cast<std::int32_t>(*token) : -1;
  };
  Thought thought{.open_token = id(kThinkOpen), .close_token = id(kThinkClose), .end_tokens = service.end_tokens};
  if (output_start_after(*prompt) == OutputStart::reasoning) {
    thought.state = Thinking::open;
    if (thought.close_token < 0)
      return Error{"the model's vocabulary has no token that ends its reasoning, so that nothing tells where the answer begins",
                   "turn thinking off in chat_template_kwargs"};
  } else if (thought.open_token >= 0 && thought.close_token >= 0 && !ends_with_tag(*prompt, kThinkClose)) {
    thought.state = Thinking::possible;
  }
  return thought;
}

bool must_call(const AnswerRule& rule) {
  return rule.choice.kind == ToolChoice::Kind::required || rule.choice.kind == ToolChoice::Kind::named;
}

// The form as the right side of a rule, for a grammar that also allows calls.
Result<std::string> answer_part(const AnswerFormat& format) {
  using Kind = AnswerFormat::Kind;
  if (format.kind == Kind::json_object) return lark_json("");
  if (format.kind == Kind::json_schema) return lark_json(format.definition);
  if (format.kind == Kind::choice) return lark_choice(format.choices);
  return Error{"a regular expression or grammar cannot go with tools", "leave the tools out, or set tool_choice to 'none' or 'required'"};
}

// The grammar as text where calls are part of it.
Result<std::string> grammar_with_calls(const Service& service, const AnswerRule& rule) {
  std::vector<ToolSignature> tools;
  for (const ToolSignature& tool : rule.tools) {
    if (rule.choice.kind != ToolChoice::Kind::named || tool.name == rule.choice.name) tools.push_back(tool);
  }
  if (tools.empty()) return Error{"there is no such tool", "name one of the tools"};
  CallGrammarOptions options{.format = service.output_format, .tools = tools, .count = rule.count};
  if (rule.choice.kind == ToolChoice::Kind::named) options.count = CallCount::one;
  if (!must_call(rule)) options.answer = TRY(answer_part(rule.format));
  return call_grammar(service.tokenizer, options);
}

// Compiles the grammar of one answer.
using Compile = std::function<Result<Grammar>(const GrammarFactory& factory)>;

Result<Compile> compiler_of(const Service& service, const AnswerRule& rule) {
  using Kind = AnswerFormat::Kind;
  const auto lark = [](std::string text) -> Compile {
    return [text = std::move(text)](const GrammarFactory& factory) { return factory.lark(text); };
  };
  const std::string& definition = rule.format.definition;
  if (rule.choice.kind != ToolChoice::Kind::none && !rule.tools.empty()) {
    std::string text = TRY(grammar_with_calls(service, rule));
    return lark(std::move(text));
  }
  switch (rule.format.kind) {
    case Kind::json_object:
      return Compile([](const GrammarFactory& factory) { return factory.json_object(); });
    case Kind::json_schema:
      return Compile([&definition](const GrammarFactory& factory) { return factory.json_schema(definition); });
    case Kind::regex:
      return Compile([&definition](const GrammarFactory& factory) { return factory.regex(definition); });
    case Kind::choice:
      return lark("start: " + lark_choice(rule.format.choices));
    default:
      return lark(definition);
  }
}

Error in_field(const AnswerRule& rule, const Error& error) {
  const std::string field = must_call(rule) ? "tool_choice" : rule.format.field;
  return {"request body: field '" + field + "': " + error.what, error.remedy.empty() ? "change it, or leave it out" : error.remedy};
}

}  // namespace

Result<AnswerConstraints> constrain_answers(const Service& service, const AnswerRule& rule, std::size_t count) {
  if (rule.format.kind == AnswerFormat::Kind::text && !must_call(rule)) return AnswerConstraints{};
  if (!service.grammars) return in_field(rule, service.grammars.error());
  const Result<Thought> thought = thought_after(service, rule.prompt);
  if (!thought) return in_field(rule, thought.error());
  const Result<Compile> compile = compiler_of(service, rule);
  if (!compile) return in_field(rule, compile.error());
  AnswerConstraints constraints;
  for (std::size_t i = 0; i < count; ++i) {
    Result<Grammar> grammar = (*compile)(*service.grammars);
    if (!grammar) return in_field(rule, grammar.error());
    constraints.push_back(std::make_shared<GrammarAfterThought>(std::move(*grammar), *thought, service.limits.vocab));
  }
  return constraints;
}

}  // namespace reckoner
