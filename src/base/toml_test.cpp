#include "base/toml.h"

#include <gtest/gtest.h>

#include <string>

namespace reckoner {
namespace {

std::string parse_error(std::string_view text) {
  const Result<JsonDocument> document = parse_toml(text, "x.toml");
  return document ? "" : document.error().what;
}

TEST(Toml, ReadsEveryType) {
  const Result<JsonDocument> document = parse_toml(R"(
i = 7
f = 0.5
s = "a\tb"
raw = 'C:\n'
t = true
date = 2026-03-04
moment = 2026-03-04T05:06:07Z
list = ["a", [1, 2]]
table.inner = { x = 1 }
[[trial]]
name = "first"
[[trial]]
name = "second"
)",
                                                   "x.toml");
  ASSERT_TRUE(document.ok()) << document.error().what;
  const JsonNode root = document->root();
  EXPECT_EQ(*root.required("i")->as_int64(0, 10), 7);
  EXPECT_EQ(*root.required("f")->as_float(), 0.5);
  EXPECT_EQ(*root.required("s")->as_string(), "a\tb");
  EXPECT_EQ(*root.required("raw")->as_string(), "C:\\n");
  EXPECT_TRUE(*root.required("t")->as_bool());
  EXPECT_EQ(*root.required("date")->as_string(), "2026-03-04");
  EXPECT_EQ(*root.required("moment")->as_string(), "2026-03-04T05:06:07Z");
  EXPECT_EQ(root.required("list")->as_array()->at(1).as_array()->size(), 2u);
  EXPECT_EQ(*root.required("table")->required("inner")->required("x")->as_int64(0, 10), 1);
  EXPECT_EQ(*root.required("trial")->as_array()->at(1).required("name")->as_string(), "second");
}

TEST(Toml, ErrorsGiveLineAndColumn) {
  EXPECT_TRUE(parse_error("a = 1\nb = \n").starts_with("x.toml: line 2, column ")) << parse_error("a = 1\nb = \n");
  EXPECT_TRUE(parse_error("a = 1\na = 2\n").starts_with("x.toml: line 2, column ")) << parse_error("a = 1\na = 2\n");
  EXPECT_TRUE(parse_error("a = \"\xff\"").starts_with("x.toml: line 1, column ")) << parse_error("a = \"\xff\"");
  EXPECT_NE(parse_error("a = " + std::string(100'000, '[')), "");
  for (const char* bad :
       {"[&", "[&x]", "[[&x]]", "[ \x01]", "&", "a.&", "[a.&]", "a = {&", "a = [&", "[", "[[", "[]", "= 1", "\"", "'", "a"})
    EXPECT_TRUE(parse_error(bad).starts_with("x.toml: line 1, column ")) << bad << ": " << parse_error(bad);
  EXPECT_TRUE(parse_error("\xEF\xBA\xBF = 1").starts_with("x.toml: line 1, column ")) << parse_error("\xEF\xBA\xBF = 1");
  EXPECT_EQ(parse_error("a = \"\xEF\xBA\xBF\""), "") << "a letter in a string";
  EXPECT_EQ(parse_error(""), "") << "an empty table";
  for (const char* header : {"[=]", "[[=]]", "[a.=]", "a.= 1", "[", "[a", "[a.", "a.", "a"}) EXPECT_NE(parse_error(header), "") << header;
}

TEST(Toml, FieldsAreNamedAsInJson) {
  const Result<JsonDocument> document = parse_toml("[[trial]]\nname = 3\n", "x.toml");
  ASSERT_TRUE(document.ok());
  const Result<std::string> name = document->root().required("trial")->as_array()->front().required("name")->as_string();
  ASSERT_FALSE(name.ok());
  EXPECT_EQ(name.error().what, "x.toml: field 'trial[0].name': expected a string, found the number 3");
}

}  // namespace
}  // namespace reckoner
