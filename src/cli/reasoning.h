// ReasoningSplitter: tells what a model thinks from what it answers, while the text arrives in pieces.
#pragma once

#include <string>
#include <string_view>

namespace reckoner {

struct SplitText {
  std::string reasoning;
  std::string answer;
};

// Reasoning is what stands before "</think>", when the prompt ended by opening it or the text itself starts with "<think>".
// The tags are in neither part, nor is the white space around them.
class ReasoningSplitter {
 public:
  enum class Start { answer, reasoning, unknown };
  explicit ReasoningSplitter(Start start) : state_(start) {}
  // By the end of the prompt: reasoning after "<think>", unknown otherwise.
  static Start start_after(std::string_view prompt);

  // Takes the next piece of text and gives what has become certain; what may yet turn out to be a tag is held back.
  SplitText push(std::string_view piece);
  // The end of the text: gives what was held back.
  SplitText finish();

 private:
  void take_open_tag(bool at_end);
  void take_reasoning(bool at_end, SplitText& out);
  void take_answer(SplitText& out);
  SplitText take(bool at_end);

  Start state_;
  std::string held_;                // not given out yet
  bool after_reasoning_ = false;    // white space before the answer is still to be dropped
  bool reasoning_started_ = false;  // some of it was given out
};

}  // namespace reckoner
