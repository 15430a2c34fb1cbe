#include "cli/text_format.h"

#include <gtest/gtest.h>

#include "cli/command_line.h"

namespace reckoner {
namespace {

TEST(TextFormat, BytesHaveThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1234), "1.23 kB");
  EXPECT_EQ(bytes_text(999'600), "1.00 MB");
  EXPECT_EQ(bytes_text(19'016'424), "19.0 MB");
  EXPECT_EQ(bytes_text(1.5e12), "1.50 TB");
  EXPECT_EQ(count_text(12'900'000), "12.9 M");
  EXPECT_EQ(count_text(7), "7");
}

TEST(TextFormat, SecondsBecomeMinutes) {
  EXPECT_EQ(seconds_text(0.024), "0.02 s");
  EXPECT_EQ(seconds_text(12.34), "12.3 s");
  EXPECT_EQ(seconds_text(80), "1 min 20 s");
}

TEST(TextFormat, QuotedShowsEveryByte) {
  EXPECT_EQ(quoted_text("a b"), "\"a b\"");
  EXPECT_EQ(quoted_text("\n\t\"\\\x01"), R"("\n\t\"\\\x01")");
  EXPECT_EQ(quoted_text("\xC3\xA9\xE2\x82"), "\"\xC3\xA9\\xE2\\x82\"");
  EXPECT_EQ(quoted_text("\xED\xA0\x80"), R"("\xED\xA0\x80")") << "a surrogate is no character";
}

TEST(TextFormat, ValidUtf8ReplacesOnlyWhatIsBroken) {
  EXPECT_EQ(valid_utf8("\xC3\xA9!"), "\xC3\xA9!");
  EXPECT_EQ(valid_utf8("a\xFF"), "a\xEF\xBF\xBD");
}

TEST(TextFormat, SettingsShareTheirColumns) {
  EXPECT_EQ(settings_table({{"a", "1", "file", "why"}, {"long", "22", "", ""}}), "  a     1   file; why\n  long  22\n");
}

TEST(CommandLine, NearestFindsMisspellings) {
  const std::vector<std::string> names = {"run", "verify", "inspect", "tokenize"};
  EXPECT_EQ(nearest("rnu", names), "run");
  EXPECT_EQ(nearest("verfy", names), "verify");
  EXPECT_EQ(nearest("tok", names), "tokenize");
  EXPECT_EQ(nearest("frobnicate", names), "");
}

}  // namespace
}  // namespace reckoner
