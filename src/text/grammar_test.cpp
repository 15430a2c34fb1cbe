#include "text/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/text_test_support.h"

namespace reckoner {
namespace {

constexpr std::int32_t kEosIds[] = {4032, 4039, 4041};  // models/pocket/generation_config.json
constexpr std::int64_t kVocabSize = 4100;               // wider than the tokenizer, as logits may be

using Mask = std::vector<std::uint32_t>;

Mask mask_of(Grammar& grammar, std::int64_t vocab_size = kVocabSize) {
  Mask mask(static_cast<std::size_t>(vocab_size + 31) / 32, 0xFFFFFFFFu);
  const Status status = grammar.compute_mask(mask);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message());
  return mask;
}
bool allows(const Mask& mask, TokenId id) { return (mask[id / 32] >> (id % 32) & 1u) != 0; }

std::vector<TokenId> allowed_ids(const Mask& mask) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < mask.size() * 32; ++id) {
    if (allows(mask, id)) ids.push_back(id);
  }
  return ids;
}

class PocketGrammar : public testing::Test {
 protected:
  // Whether the grammar takes all of the text; then, whether the text may end there. The mask has to agree at every step.
  enum class Match { none, beginning, whole };
  Match match(Grammar grammar, std::string_view text) {
    for (const TokenId id : must(tokenizer_.encode(text))) {
      const bool allowed = allows(mask_of(grammar), id);
      EXPECT_EQ(grammar.accept(id).ok(), allowed) << text << ": token " << id;
      if (!allowed) return Match::none;
    }
    return allows(mask_of(grammar), kEosIds[0]) ? Match::whole : Match::beginning;
  }
  bool matches(const char* schema, std::string_view text) { return match(must(factory_.json_schema(schema)), text) == Match::whole; }

  // A text of tokens drawn from those allowed, until it ends.
  std::string walk(Grammar grammar, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> ids;
    for (int step = 0; step < 2000; ++step) {
      const std::vector<TokenId> allowed = allowed_ids(mask_of(grammar));
      if (allowed.empty()) {
        ADD_FAILURE() << "nothing is allowed";
        break;
      }
      const TokenId id = allowed[random() % allowed.size()];
      EXPECT_LT(id, tokenizer_.vocab_size());
      EXPECT_TRUE(grammar.accept(id).ok());
      if (std::find(std::begin(kEosIds), std::end(kEosIds), static_cast<std::int32_t>(id)) != std::end(kEosIds)) break;
      ids.push_back(id);
    }
    EXPECT_TRUE(grammar.finished());
    EXPECT_EQ(allowed_ids(mask_of(grammar)), std::vector<TokenId>(std::begin(kEosIds), std::end(kEosIds)));
    return must(tokenizer_.decode(ids));
  }

  const Tokenizer tokenizer_ = pocket();
  const GrammarFactory factory_ = must(GrammarFactory::create(tokenizer_, kEosIds, kVocabSize));
};

TEST_F(PocketGrammar, FollowsReferences) {
  const char* schema = R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/One"}}, "required": ["a"], "additionalProperties": false,
    "$defs": {"One": {"$ref": "#/$defs/Two"}, "Two": {"type": "array", "items": {"$ref": "#/$defs/Three"}, "maxItems": 2},
              "Three": {"enum": ["x", 3, null]}}})";
  EXPECT_TRUE(matches(schema, R"({"a": []})"));
  EXPECT_TRUE(matches(schema, R"({"a":["x",null]})"));
  EXPECT_TRUE(matches(schema, "{\n  \"a\": [\n    3\n  ]\n}"));
  EXPECT_FALSE(matches(schema, R"({"a": ["y"]})"));
  EXPECT_FALSE(matches(schema, R"({"a": [3, 3, 3]})"));
  EXPECT_FALSE(matches(schema, R"({"b": []})"));
  EXPECT_FALSE(matches(schema, R"({})"));
  EXPECT_FALSE(matches(schema, R"({"a": [])"));
}

TEST_F(PocketGrammar, FollowsRecursion) {
  const char* schema = R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                           "required": ["next"], "additionalProperties": false})";
  EXPECT_TRUE(matches(schema, R"({"next": {"next": {"next": null}}})"));
  EXPECT_FALSE(matches(schema, R"({"next": {"next": {"next": 1}}})"));
}

TEST_F(PocketGrammar, KeepsIntegersWithinBounds) {
  const char* schema = R"({"type": "integer", "minimum": -3, "maximum": 128})";
  for (int i = -20; i <= 300; ++i) EXPECT_EQ(matches(schema, std::to_string(i)), i >= -3 && i <= 128) << i;
  for (const char* text : {"1.5", "01", "1e1", "\"1\"", "true", ""}) EXPECT_FALSE(matches(schema, text)) << text;
}

// White space without end would go on until the answer's length is used up.
TEST_F(PocketGrammar, BoundsWhiteSpace) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false)";
  const auto spaces_after = [&](const std::string& whole_schema, const char* before, const char* space) {
    Grammar grammar = must(factory_.json_schema(whole_schema));
    for (const TokenId id : must(tokenizer_.encode(before))) EXPECT_TRUE(grammar.accept(id).ok()) << before;
    const TokenId id = must(tokenizer_.encode(space)).at(0);
    int count = 0;
    while (count < 1000 && grammar.accept(id).ok()) ++count;
    return count;
  };
  for (const char* before : {"{", "{\"a\"", "{\"a\":", "{\"a\": \"b\"", "{\"a\": \"b\"}"}) {
    for (const char* space : {" ", "\n", "\t"}) EXPECT_LE(spaces_after(schema + "}", before, space), 64) << before;
  }
  EXPECT_EQ(spaces_after(schema + "}", "{\"a\":", " "), 64);  // an indented text is not in the way of that
  // Where the schema says so itself.
  EXPECT_EQ(spaces_after(schema + R"(, "x-guidance": {"whitespace_flexible": true}})", "{", " "), 1000);
  EXPECT_EQ(spaces_after(schema + R"(, "x-guidance": {"whitespace_flexible": false}})", "{", " "), 0);
}

TEST_F(PocketGrammar, ASchemaWithoutDemandsIsAnObject) {
  for (const char* schema : {"{}", "true", " { } "}) {
    EXPECT_TRUE(matches(schema, R"({"a": [1, {"b": null}], "é": "漢"})")) << schema;
    EXPECT_FALSE(matches(schema, "1")) << schema;
  }
  EXPECT_EQ(match(must(factory_.json_object()), R"({"a": 1})"), Match::whole);
  EXPECT_EQ(match(must(factory_.json_object()), R"({"a": 1)"), Match::beginning);
  EXPECT_EQ(match(must(factory_.json_object()), "[1]"), Match::none);
}

TEST_F(PocketGrammar, FollowsRegularExpressions) {
  const auto regex = [&](std::string_view text) { return match(must(factory_.regex("(cat|dog)s?: [0-9]{2,3}")), text); };
  EXPECT_EQ(regex("cats: 12"), Match::whole);
  EXPECT_EQ(regex("dog: 123"), Match::whole);
  EXPECT_EQ(regex("dog: 1"), Match::beginning);
  EXPECT_EQ(regex("dog: 1234"), Match::none);
  EXPECT_EQ(regex("a cat: 12"), Match::none);
}

// In a grammar's own language the added tokens can be named.
TEST_F(PocketGrammar, FollowsLarkGrammars) {
  const char* lark = "start: <tool_call> NAME </tool_call>\nNAME: /[a-z]+/";
  EXPECT_EQ(match(must(factory_.lark(lark)), "<tool_call>now</tool_call>"), Match::whole);
  EXPECT_EQ(match(must(factory_.lark(lark)), "<tool_call>Now"), Match::none);
  EXPECT_EQ(match(must(factory_.lark(lark)), "now"), Match::none);
}

TEST_F(PocketGrammar, KeepsAddedTokensOutOfStrings) {
  Grammar grammar = must(factory_.json_schema(R"({"type": "string"})"));
  ASSERT_TRUE(grammar.accept(must(tokenizer_.encode("\"")).at(0)).ok());
  const Mask mask = mask_of(grammar);
  for (TokenId id = 4032; id < mask.size() * 32; ++id) EXPECT_FALSE(allows(mask, id)) << id;
  EXPECT_GT(allowed_ids(mask).size(), 3000u);  // most of the vocabulary is ordinary text
}

TEST_F(PocketGrammar, RandomTextsFollowTheSchema) {
  const char* schema = R"({"type": "object", "additionalProperties": false, "required": ["name", "count", "kind", "list"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "minimum": -5, "maximum": 1200},
    "kind": {"enum": ["old", "new", "Größe 漢字 😀"]}, "list": {"type": "array", "maxItems": 3, "items": {"type": ["boolean", "null"]}},
    "more": {"$ref": "#/$defs/More"}},
    "$defs": {"More": {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"], "additionalProperties": false}}})";
  for (std::uint32_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    const std::string text = walk(must(factory_.json_schema(schema)), seed);
    const Result<JsonDocument> document = parse_json(text, "answer");
    ASSERT_TRUE(document.ok()) << text << "\n" << document.error().message();
    const JsonNode root = document->root();
    EXPECT_TRUE(must(must(root.required("name")).as_string()).size() <= 4 * 12u) << text;
    EXPECT_TRUE(must(root.required("count")).as_int64(-5, 1200).ok()) << text;
    const std::string kind = must(must(root.required("kind")).as_string());
    EXPECT_TRUE(kind == "old" || kind == "new" || kind == "Größe 漢字 😀") << text;
    EXPECT_LE(must(must(root.required("list")).as_array()).size(), 3u) << text;
    EXPECT_LE(must(root.as_object()).size(), 5u) << text;
  }
}

TEST_F(PocketGrammar, ARefusedTokenChangesNothing) {
  Grammar grammar = must(factory_.regex("ab"));
  const Mask before = mask_of(grammar);
  for (const TokenId id : {must(tokenizer_.encode("z")).at(0), TokenId{4090}, TokenId{1000000}, TokenId{4039}}) {
    const Status refused = grammar.accept(id);
    ASSERT_FALSE(refused.ok()) << id;
    EXPECT_NE(refused.error().what.find(std::to_string(id)), std::string::npos);
    EXPECT_EQ(mask_of(grammar), before);
  }
  for (const TokenId id : must(tokenizer_.encode("ab"))) EXPECT_TRUE(grammar.accept(id).ok());
  EXPECT_TRUE(grammar.finished());
  EXPECT_FALSE(grammar.accept(must(tokenizer_.encode("a")).at(0)).ok());
  EXPECT_TRUE(grammar.accept(4039).ok());
  EXPECT_TRUE(grammar.finished());
}

TEST_F(PocketGrammar, OutlivesItsFactory) {
  Grammar grammar = [] {
    const GrammarFactory factory = must(GrammarFactory::create(pocket(), kEosIds, kVocabSize));
    return must(factory.regex("a+"));
  }();
  EXPECT_EQ(match(std::move(grammar), "aaa"), Match::whole);
}

struct BadGrammar {
  Result<Grammar> (GrammarFactory::*compile)(std::string_view) const;
  const char* text;
  const char* named;  // in the message
};
TEST_F(PocketGrammar, ErrorsNameTheProblem) {
  constexpr auto kSchema = &GrammarFactory::json_schema;
  const BadGrammar cases[] = {
      {kSchema, "{\"type\":", "json_schema"},
      {kSchema, "[]", "expected an object"},
      {kSchema, R"({"type": "strin"})", "strin"},
      {kSchema, R"({"$ref": "#/$defs/nope"})", "nope"},
      {kSchema, R"({"type": "integer", "minimum": 3, "maximum": 2})", "3"},
      {kSchema, R"({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}})", "uniqueItems"},
      {kSchema, R"({"$ref": "#"})", "no text follows it"},
      {&GrammarFactory::regex, "a(b", "regex"},
      {&GrammarFactory::lark, "start: nothing", "nothing"},
      {&GrammarFactory::lark, "", "grammar"},
      {kSchema, "\xFF", "UTF-8"},
  };
  for (const BadGrammar& c : cases) {
    const Result<Grammar> grammar = (factory_.*c.compile)(c.text);
    ASSERT_FALSE(grammar.ok()) << c.text;
    const std::string& what = grammar.error().what;
    SCOPED_TRACE(c.text);
    EXPECT_NE(what.find(c.named), std::string::npos) << what;
    EXPECT_EQ(what.find("non-verbose"), std::string::npos) << what;
  }
}

TEST_F(PocketGrammar, EndTokensAreOfTheModel) {
  EXPECT_FALSE(GrammarFactory::create(tokenizer_, {}, kVocabSize).ok());
  for (const std::int32_t id : {std::int32_t{-1}, static_cast<std::int32_t>(kVocabSize)}) {
    const Result<GrammarFactory> factory = GrammarFactory::create(tokenizer_, std::span(&id, 1), kVocabSize);
    EXPECT_FALSE(factory.ok()) << id;
  }
  // A model with fewer tokens than its tokenizer.
  EXPECT_TRUE(GrammarFactory::create(tokenizer_, std::span(kEosIds, 1), 4033).ok());
}

TEST(Grammar, WorksWithTiktoken) {
  const Tokenizer tokenizer = must(Tokenizer::load("tests/data/tokenizers/kimi"));
  const auto vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size());
  const std::int32_t eos[] = {static_cast<std::int32_t>(tokenizer.token_id("<|im_end|>").value())};
  const GrammarFactory factory = must(GrammarFactory::create(tokenizer, eos, vocab_size));
  Grammar grammar = must(factory.json_schema(R"({"type": "object", "properties": {"é": {"enum": ["漢字 😀"]}}, "required": ["é"]})"));
  for (const TokenId id : must(tokenizer.encode(R"({"é": "漢字 😀"})"))) {
    const Mask mask = mask_of(grammar, vocab_size);
    EXPECT_TRUE(allows(mask, id));
    EXPECT_FALSE(allows(mask, tokenizer.token_id("<|tool_call_begin|>").value()));
    EXPECT_FALSE(allows(mask, static_cast<TokenId>(eos[0])));
    ASSERT_TRUE(grammar.accept(id).ok());
  }
  EXPECT_TRUE(allows(mask_of(grammar, vocab_size), static_cast<TokenId>(eos[0])));
}

}  // namespace
}  // namespace reckoner
