#include "diagnose/trials/probes.h"

#include <gtest/gtest.h>

namespace reckoner::trials {
namespace {

TEST(FieldText, FollowsNamesNumbersAndMembers) {
  const std::string json =
      R"({"a": {"b": [1, {"c": "x"}]}, "settings": [{"name": "device", "value": "cpu"}, {"name": "KV cache", "value": 2.5}]})";
  EXPECT_EQ(field_text(json, "a.b.0"), "1");
  EXPECT_EQ(field_text(json, "a.b.1.c"), "x");
  EXPECT_EQ(field_text(json, "settings.[name=device].value"), "cpu");
  EXPECT_EQ(field_text(json, "settings.[name=KV cache].value"), "2.5E0");
  EXPECT_EQ(field_text(json, "a.b.2"), "");
  EXPECT_EQ(field_text(json, "a.x"), "");
  EXPECT_EQ(field_text(json, "settings.[name=none].value"), "");
  EXPECT_EQ(field_text(json, "a.b.1.c.d"), "");
  EXPECT_EQ(field_text("no json", "a"), "");
}

}  // namespace
}  // namespace reckoner::trials
