#include "cli/reasoning.h"

#include <algorithm>

namespace reckoner {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n";

void drop_leading_space(std::string& text) { text.erase(0, std::min(text.find_first_not_of(kSpace), text.size())); }

// How many characters at the end of `text` may be the beginning of `tag`.
std::size_t possible_tag(std::string_view text, std::string_view tag) {
  for (std::size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length) {
    if (text.ends_with(tag.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

ReasoningSplitter::Start ReasoningSplitter::start_after(std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(kSpace);
  const bool opened = last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(kOpen);
  return opened ? Start::reasoning : Start::unknown;
}

SplitText ReasoningSplitter::push(std::string_view piece) {
  held_ += piece;
  return take(false);
}

SplitText ReasoningSplitter::finish() { return take(true); }

SplitText ReasoningSplitter::take(bool at_end) {
  SplitText out;
  if (state_ == Start::unknown) take_open_tag(at_end);
  if (state_ == Start::reasoning) take_reasoning(at_end, out);
  if (state_ == Start::answer) take_answer(out);
  return out;
}

void ReasoningSplitter::take_open_tag(bool at_end) {
  const std::size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view start = std::string_view(held_).substr(first);
  if (start.starts_with(kOpen)) {
    held_.erase(0, first + kOpen.size());
    state_ = Start::reasoning;
  } else if (at_end || !kOpen.starts_with(start)) {
    state_ = Start::answer;
  }
}

void ReasoningSplitter::take_reasoning(bool at_end, SplitText& out) {
  if (!reasoning_started_) drop_leading_space(held_);
  const std::size_t close = held_.find(kClose);
  const bool closed = close != std::string::npos;
  std::size_t end = closed ? close : held_.size() - (at_end ? 0 : possible_tag(held_, kClose));
  // White space at the end may be what stands before the tag.
  const std::size_t text_end = held_.find_last_not_of(kSpace, end == 0 ? 0 : end - 1);
  const std::size_t keep = end == 0 || text_end == std::string::npos ? 0 : text_end + 1;
  out.reasoning = held_.substr(0, std::min(keep, end));
  reasoning_started_ = reasoning_started_ || !out.reasoning.empty();
  if (!closed) {
    held_.erase(0, at_end ? held_.size() : out.reasoning.size());
    return;
  }
  held_.erase(0, close + kClose.size());
  state_ = Start::answer;
  after_reasoning_ = true;
}

void ReasoningSplitter::take_answer(SplitText& out) {
  if (after_reasoning_) drop_leading_space(held_);
  after_reasoning_ = after_reasoning_ && held_.empty();
  out.answer = std::move(held_);
  held_.clear();
}

}  // namespace reckoner
