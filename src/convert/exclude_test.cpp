#include "convert/exclude.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include "convert/json_text.h"

namespace reckoner {
namespace {

std::vector<std::string> spelled(const std::vector<UnquantisedPart>& parts, std::string (*spelling)(const UnquantisedPart&)) {
  std::vector<std::string> list;
  for (const UnquantisedPart& part : parts) list.push_back(spelling(part));
  return list;
}

TEST(Exclude, CoversWholePartsAndStopsAtNumbers) {
  const std::vector<UnquantisedPart> parts = unquantised_parts(
      {"model.layers.2.mlp.experts.0.up_proj", "model.layers.2.mlp.experts.1.up_proj", "model.layers.10.mlp.experts.0.up_proj"},
      {"lm_head", "model.layers.1.mlp.up_proj", "model.layers.1.self_attn.o_proj", "model.layers.2.mlp.gate",
       "model.layers.2.mlp.shared_experts.up_proj", "model.layers.2.self_attn.o_proj", "model.layers.10.self_attn.o_proj"});
  // "model.layers.1*" would take layer 10 too, "model.layers.2.mlp.gate*" would take gate_proj.
  EXPECT_EQ(spelled(parts, as_glob),
            (std::vector<std::string>{"lm_head", "model.layers.1.*", "model.layers.2.mlp.gate", "model.layers.2.mlp.shared_experts*",
                                      "model.layers.2.self_attn*", "model.layers.10.self_attn*"}));
  EXPECT_EQ(spelled(parts, as_expression)[1], R"(re:model\.layers\.1\..*)");
  EXPECT_EQ(spelled(parts, as_expression)[0], "lm_head");
}

TEST(Exclude, NothingToExclude) { EXPECT_TRUE(unquantised_parts({"a.b"}, {}).empty()); }

// As Python's json.dump(..., indent=2) writes it.
TEST(JsonText, NumbersStayWhatTheyWereAndKeysInOrder) {
  const std::string text =
      "{\n  \"z\": 1e-05,\n  \"a\": [\n    1000000.0,\n    1.0,\n    2,\n    null\n  ],\n  \"e\": {},\n  \"l\": []\n}\n";
  EXPECT_EQ(json_text(boost::json::parse(text)), text);
}

}  // namespace
}  // namespace reckoner
