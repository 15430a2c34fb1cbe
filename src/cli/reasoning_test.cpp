#include "cli/reasoning.h"

#include <gtest/gtest.h>

namespace reckoner {
namespace {

using Start = ReasoningSplitter::Start;

SplitText split(Start start, const std::string& text, std::size_t piece_size) {
  ReasoningSplitter splitter(start);
  SplitText all;
  const auto add = [&](const SplitText& part) {
    all.reasoning += part.reasoning;
    all.answer += part.answer;
  };
  for (std::size_t at = 0; at < text.size(); at += piece_size) add(splitter.push(text.substr(at, piece_size)));
  add(splitter.finish());
  return all;
}

struct SplitCase {
  Start start;
  const char* text;
  const char* reasoning;
  const char* answer;
};

class ReasoningPieces : public testing::TestWithParam<SplitCase> {};

// However the text is cut into pieces, the parts are the same.
TEST_P(ReasoningPieces, DoNotMatter) {
  const SplitCase& c = GetParam();
  for (const std::size_t piece_size : {1, 2, 3, 5, 7, 100}) {
    const SplitText parts = split(c.start, c.text, piece_size);
    EXPECT_EQ(parts.reasoning, c.reasoning) << "pieces of " << piece_size;
    EXPECT_EQ(parts.answer, c.answer) << "pieces of " << piece_size;
  }
}

INSTANTIATE_TEST_SUITE_P(, ReasoningPieces,
                         testing::Values(SplitCase{Start::reasoning, "I think.</think>So.", "I think.", "So."},
                                         SplitCase{Start::reasoning, "\nI  think.\n\n</think>\n\nSo.\n", "I  think.", "So.\n"},
                                         SplitCase{Start::reasoning, "a < b </ c </thin", "a < b </ c </thin", ""},
                                         SplitCase{Start::reasoning, "</think>So.", "", "So."},
                                         SplitCase{Start::reasoning, "  </think>", "", ""}, SplitCase{Start::reasoning, "", "", ""},
                                         SplitCase{Start::reasoning, "never closed ", "never closed", ""},
                                         SplitCase{Start::unknown, "So </think> be it", "", "So </think> be it"},
                                         SplitCase{Start::unknown, "<think>Hm.</think>So.", "Hm.", "So."},
                                         SplitCase{Start::unknown, "\n<think>\nHm.</think>So.", "Hm.", "So."},
                                         SplitCase{Start::unknown, " <thin", "", " <thin"}, SplitCase{Start::unknown, "  So.", "", "  So."},
                                         SplitCase{Start::answer, "<think>as it is</think>", "", "<think>as it is</think>"}));

TEST(Reasoning, StartsWhereThePromptOpenedIt) {
  EXPECT_EQ(ReasoningSplitter::start_after("<|assistant|><think>"), Start::reasoning);
  EXPECT_EQ(ReasoningSplitter::start_after("<|assistant|>\n<think>\n"), Start::reasoning);
  EXPECT_EQ(ReasoningSplitter::start_after("<|assistant|></think>"), Start::unknown);
  EXPECT_EQ(ReasoningSplitter::start_after(""), Start::unknown);
}

// A reader sees the text as early as it is certain.
TEST(Reasoning, HoldsBackOnlyWhatMayBeATag) {
  ReasoningSplitter splitter(Start::reasoning);
  EXPECT_EQ(splitter.push("thinking").reasoning, "thinking");
  EXPECT_EQ(splitter.push(" <").reasoning, "");
  EXPECT_EQ(splitter.push("b").reasoning, " <b");
}

}  // namespace
}  // namespace reckoner
