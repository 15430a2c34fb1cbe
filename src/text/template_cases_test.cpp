// What published chat templates use of Jinja, one case each, against what transformers renders (tools/template_cases.py).
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "text/text_test_support.h"

namespace reckoner {
namespace {

namespace json = boost::json;

Result<std::string> render(const json::object& given) {
  Result<Tokenizer> tokenizer = pocket_with_template(given.at("template").as_string());
  if (!tokenizer) return tokenizer.error();
  const bool opens = given.at("add_generation_prompt").as_bool();
  return tokenizer->apply_chat_template({.messages_json = serialize(given.at("messages")),
                                         .tools_json = serialize(given.at("tools")),
                                         .kwargs_json = serialize(given.at("kwargs")),
                                         .generation_prompt = opens ? GenerationPrompt::add : GenerationPrompt::none});
}

// Where the engine below differs. It refuses the operator, and names the line; it iterates null as an empty list.
constexpr std::string_view kRefused = "percent";
constexpr std::string_view kTaken = "null is iterated";

TEST(TemplateCases, RenderAsTransformers) {
  const json::value document = json::parse(read_file("tests/data/tokenizers/templates.json"));
  const json::array& cases = document.at("cases").as_array();
  ASSERT_GE(cases.size(), 80u);
  for (const json::value& one : cases) {
    const json::object& given = one.as_object();
    const std::string name(given.at("name").as_string());
    SCOPED_TRACE(name);
    const Result<std::string> rendered = render(given);
    const json::value* text = given.if_contains("text");
    if (text != nullptr && name != kRefused) {
      EXPECT_EQ(rendered.ok() ? *rendered : rendered.error().what, std::string(text->as_string()));
    } else if (name != kTaken) {
      ASSERT_FALSE(rendered.ok()) << *rendered;
      EXPECT_NE(rendered.error().what.find("(in chat template:"), std::string::npos) << rendered.error().what;
    }
  }
}

TEST(TemplateCases, AnUnknownFilterIsNamedWithItsLine) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ 1 }}\n\n{{ '{}' | fromjson }}"));
  const Result<std::string> rendered = tokenizer.apply_chat_template({.messages_json = "[]"});
  ASSERT_FALSE(rendered.ok());
  EXPECT_NE(rendered.error().what.find("fromjson"), std::string::npos) << rendered.error().what;
  EXPECT_NE(rendered.error().what.find("chat template:3"), std::string::npos) << rendered.error().what;
}

// What a generation block sets is its own, as transformers has it.
TEST(TemplateCases, AGenerationBlockIsAScope) {
  const Tokenizer tokenizer = must(pocket_with_template("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"));
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = "[]"})), "21");
}

// transformers would leave a developer's message out where the template knows no such role.
TEST(TemplateCases, ADeveloperIsTheSystemWhereATemplateKnowsNone) {
  const ChatPrompt prompt{.messages_json = R"([{"role":"user","content":"x"},{"role":"developer","content":"dev"}])"};
  const std::string loop = "{% for m in messages %}{% if m.role in ROLES %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";
  const auto with_roles = [&](const std::string& roles) {
    std::string text = loop;
    return text.replace(text.find("ROLES"), 5, roles);
  };
  EXPECT_EQ(must(must(pocket_with_template(with_roles("['system', 'user']"))).apply_chat_template(prompt)), "[user:x][system:dev]");
  EXPECT_EQ(must(must(pocket_with_template(with_roles("['developer']"))).apply_chat_template(prompt)), "[developer:dev]");
}

TEST(TemplateCases, AnAbsurdIndentIsAnError) {
  for (const char* indent : {"65", "1000000000000", "-1"}) {
    const Tokenizer tokenizer = must(pocket_with_template(std::string("{{ [1] | tojson(indent=") + indent + ") }}"));
    EXPECT_FALSE(tokenizer.apply_chat_template({.messages_json = "[]"}).ok()) << indent;
  }
}

TEST(TemplateCases, TheDateIsToday) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ strftime_now('%Y') | length }}{{ strftime_now('%d %b') | length }}"));
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = "[]"})), "46");
  EXPECT_FALSE(must(pocket_with_template("{{ strftime_now('%!') }}")).apply_chat_template({.messages_json = "[]"}).ok());
}

}  // namespace
}  // namespace reckoner
