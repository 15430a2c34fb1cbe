#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace reckoner {
namespace {

std::string parse_error(std::string_view text) {
  const Result<JsonDocument> document = parse_json(text, "x.json");
  return document ? "" : document.error().what;
}

TEST(Json, SyntaxErrorsGiveLineAndColumn) {
  struct Case {
    std::string text, expected;
  };
  const Case cases[] = {
      {"", "x.json: expected JSON, found nothing"},
      {" \n", "x.json: expected JSON, found nothing"},
      {"{\n  \"a\": 1,\n  \"b\": x\n}", "x.json: line 3, column 8: syntax error"},
      {"{\"a\": 1", "x.json: line 1, column 8: incomplete JSON"},
      {"{} {}", "x.json: line 1, column 4: extra data"},
      {"{\"a\": NaN}", "x.json: line 1, column 7: syntax error"},
      {"\xff", "x.json: line 1, column 1: syntax error"},
      {"[\"\xff\"]", "x.json: line 1, column 3: syntax error"},
      {std::string(65, '['), "x.json: line 1, column 65: too deep"},
      {"{\"a\": {\"b\": 1, \"c\": 2,\n\"b\": 3}}", "x.json: line 2, column 3: the key \"b\" occurs twice in one object"},
      {"{\"\": 1, \"\": 2}", "x.json: line 1, column 10: the key \"\" occurs twice in one object"},
      {"{\"a\": 1, \"\\u0061\": 2}", "x.json: line 1, column 17: the key \"a\" occurs twice in one object"},
  };
  for (const Case& c : cases) EXPECT_EQ(parse_error(c.text), c.expected) << c.text;
}

TEST(Json, TheSameKeyInTwoObjectsIsFine) { EXPECT_EQ(parse_error(R"({"a": {"b": 1}, "c": [{"b": 1}, {"b": 2}]})"), ""); }

TEST(Json, ReadsValues) {
  const Result<JsonDocument> document =
      parse_json(R"({"i": 7, "e": 1e6, "f": 8000000.0, "s": "x", "t": true, "n": null, "l": [1, 2]})", "x.json");
  ASSERT_TRUE(document.ok());
  const JsonNode root = document->root();
  EXPECT_EQ(*root.required("i")->as_int64(0, 10), 7);
  EXPECT_EQ(*root.required("e")->as_int64(0, 1000000), 1000000);
  EXPECT_EQ(*root.required("f")->as_int64(0, 8000000), 8000000);
  EXPECT_EQ(*root.required("i")->as_float(), 7.0);
  EXPECT_EQ(*root.required("s")->as_string(), "x");
  EXPECT_TRUE(*root.required("t")->as_bool());
  EXPECT_FALSE(root.optional("n")->has_value());
  EXPECT_FALSE(root.optional("absent")->has_value());
  EXPECT_EQ(root.required("l")->as_array()->size(), 2u);
  EXPECT_EQ(root.as_object()->front().first, "i");
}

TEST(Json, MessagesNameFileFieldAndValue) {
  const std::string text =
      R"({"a": {"b": "abc", "list": [1, {"c": 1.5}]}, "big": 18446744073709551615, "long": "0123456789012345678901234567890123456789012345678901234567890123456789", "new\nline": null})";
  const Result<JsonDocument> document = parse_json(text, "m/config.json");
  ASSERT_TRUE(document.ok());
  const JsonNode root = document->root();
  const JsonNode a = *root.required("a");
  const JsonNode c = *a.required("list")->as_array()->at(1).required("c");
  EXPECT_EQ(a.required("b")->as_float().error().what, R"(m/config.json: field 'a.b': expected a number, found the string "abc")");
  EXPECT_EQ(a.required("x").error().what, "m/config.json: field 'a.x': missing");
  EXPECT_EQ(c.as_int64(0, 9).error().what, "m/config.json: field 'a.list[1].c': expected an integer from 0 to 9, found the number 1.5");
  EXPECT_EQ(root.required("big")->as_int64(0, 9).error().what,
            "m/config.json: field 'big': expected an integer from 0 to 9, found the number 18446744073709551615");
  EXPECT_EQ(
      root.required("long")->as_bool().error().what,
      R"(m/config.json: field 'long': expected true or false, found the string "012345678901234567890123456789012345678901234567890123456789...")");
  EXPECT_EQ(c.required("x").error().what, "m/config.json: field 'a.list[1].c': expected an object, found the number 1.5");
  EXPECT_EQ(root.as_array().error().what, "m/config.json: expected an array, found an object of 4");
  EXPECT_EQ(a.renamed("part a").required("x").error().what, "m/config.json: part a: field 'x': missing");
  EXPECT_EQ(root.required("new\nline").error().what, "m/config.json: field 'new\nline': missing");
}

TEST(Json, HugeNumbersAreErrorsNotInfinities) {
  const Result<JsonDocument> document = parse_json(R"({"a": 1e308, "b": 1e30})", "x.json");
  ASSERT_TRUE(document.ok());
  EXPECT_TRUE(document->root().required("a")->as_float().ok());
  EXPECT_FALSE(document->root().required("b")->as_int64(0, 10).ok());
  const Result<JsonDocument> infinite = parse_json(R"({"a": 1e999})", "x.json");
  if (infinite) { EXPECT_FALSE(infinite->root().required("a")->as_float().ok()); }
}

TEST(Json, FilesNameThemselves) {
  EXPECT_EQ(read_json_file("no/such.json").error().what, "no/such.json: cannot open: No such file or directory");
  EXPECT_TRUE(read_json_file("models/pocket/config.json").ok());
}

}  // namespace
}  // namespace reckoner
