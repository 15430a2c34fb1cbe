#include "loadgen/answer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace reckoner::loadgen {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxErrorBytes = 16384;
constexpr std::size_t kMaxMessageBytes = 300;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;  // of one answer, whatever the server says

// On one line, without what a terminal would act on, and not too long.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte <= 0x20 || byte == 0x7F;
    if (!blank) line += c;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  if (line.size() <= kMaxMessageBytes) return line;
  std::size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // not within a character
  return line.substr(0, end) + "...";
}

// The same of bytes that may be no text at all.
std::string one_ascii_line(std::string bytes) {
  for (char& c : bytes) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return one_line(bytes);
}

const json::value* member(const json::value* value, std::string_view key) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(key) : nullptr;
}

std::string_view string_in(const json::value* value, std::string_view key) {
  const json::value* found = member(value, key);
  return found != nullptr && found->is_string() ? std::string_view(found->get_string()) : std::string_view();
}

std::int64_t count_in(const json::value* value, std::string_view key) {
  const json::value* found = member(value, key);
  return found != nullptr && found->is_int64() ? std::clamp<std::int64_t>(found->get_int64(), 0, kMaxTokens) : 0;
}

std::string message_in(const json::value& root) {
  for (const char* key : {"error", "detail", "message"}) {
    const json::value* found = root.is_object() ? member(&root, key) : nullptr;
    if (found == nullptr || found->is_null()) continue;
    if (found->is_string()) return one_line(found->get_string());
    const std::string_view inner = string_in(found, "message");
    return one_line(inner.empty() ? json::serialize(*found) : std::string(inner));
  }
  return {};
}

// All text that a choice brings: the answer, what was thought, arguments of calls.
std::string text_of(const json::value& choice) {
  std::string text(string_in(&choice, "text"));
  const json::value* delta = member(&choice, "delta");
  for (const char* key : {"reasoning_content", "reasoning", "content"}) text += string_in(delta, key);
  const json::value* calls = member(delta, "tool_calls");
  if (calls == nullptr || !calls->is_array()) return text;
  for (const json::value& call : calls->get_array()) {
    text += string_in(member(&call, "function"), "name");
    text += string_in(member(&call, "function"), "arguments");
  }
  return text;
}

}  // namespace

std::string error_message(std::string_view body) {
  json::error_code error;
  const json::value root = json::parse(body, error);
  std::string message = error ? std::string() : message_in(root);
  if (message.empty()) message = one_ascii_line(std::string(body));
  return message.empty() ? "(no message)" : message;
}

bool AnswerReader::fail(FailureKind kind, std::string message) {
  if (!timeline_.failure) timeline_.failure = Failure{.kind = kind, .status = status_, .message = std::move(message)};
  return false;
}

void AnswerReader::head(int status, std::string_view content_type) {
  status_ = status;
  content_type_ = content_type;
}

bool AnswerReader::body(std::string_view bytes, double at_s) {
  if (timeline_.failure) return false;
  if (status_ != 200 || !content_type_.starts_with("text/event-stream")) {
    error_body_.append(bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body_.size())));
    return error_body_.size() < kMaxErrorBytes;
  }
  const bool fine = parser_.feed(bytes, [&](const SseEvent& event) { return take(event, at_s); });
  return fine || fail(FailureKind::malformed, "an event of the stream is too large");
}

bool AnswerReader::take(const SseEvent& event, double at_s) {
  if (event.data == "[DONE]") {
    done_ = true;
    return true;
  }
  json::error_code error;
  const json::value root = json::parse(event.data, error);
  if (error || !root.is_object())
    return fail(FailureKind::malformed, "an event of the stream is no JSON object: " + one_ascii_line(event.data));
  if (const json::value* problem = member(&root, "error"); problem != nullptr && !problem->is_null()) {
    return fail(FailureKind::server, message_in(root));
  }
  const json::value* usage = member(&root, "usage");
  std::int64_t more = 0;
  if (usage != nullptr && usage->is_object()) {
    timeline_.counted = true;
    timeline_.input_tokens = std::max(timeline_.input_tokens, count_in(usage, "prompt_tokens"));
    const std::int64_t total = count_in(usage, "completion_tokens");
    more = std::max<std::int64_t>(0, total - counted_tokens_);
    counted_tokens_ = std::max(counted_tokens_, total);
  }
  const json::value* choices = member(&root, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return true;
  const json::value& choice = choices->get_array().front();
  const std::string text = text_of(choice);
  // Usage that comes only at the end says nothing about the piece that it comes with.
  const bool told_so_far = timeline_.chunks.empty() || timeline_.chunks.front().tokens > 0;
  if (!text.empty() || (more > 0 && told_so_far)) timeline_.chunks.push_back({.at_s = at_s, .tokens = told_so_far ? more : 0});
  timeline_.text += text;
  if (const std::string_view reason = string_in(&choice, "finish_reason"); !reason.empty()) timeline_.finish_reason = reason;
  timeline_.end_s = at_s;
  return true;
}

void AnswerReader::end(double at_s) {
  if (status_ != 200) {
    fail(FailureKind::status, error_message(error_body_));
  } else if (!content_type_.starts_with("text/event-stream")) {
    fail(FailureKind::malformed,
         fmt::format("expected a text/event-stream, found '{}': {}", one_ascii_line(content_type_), error_message(error_body_)));
  } else if (!done_ && timeline_.finish_reason.empty()) {
    fail(FailureKind::cut, "the stream ended without [DONE] and without a finish reason");
  } else if (timeline_.chunks.empty()) {
    fail(FailureKind::empty, "the answer is complete and holds no token");
  }
  if (timeline_.failure) timeline_.end_s = at_s;
  settle();
}

void AnswerReader::broken_off(const Failure& why, double at_s) {
  if (done_ && !timeline_.chunks.empty()) return end(at_s);  // only the end of the HTTP message is missing
  if (status_ != 0 && status_ != 200) {
    fail(FailureKind::status, error_message(error_body_));
  } else {
    if (!timeline_.failure) timeline_.failure = why;
    if (timeline_.failure->status == 0) timeline_.failure->status = status_;
  }
  timeline_.end_s = at_s;
  settle();
}

void AnswerReader::settle() {
  const auto pieces = static_cast<std::int64_t>(timeline_.chunks.size());
  timeline_.output_tokens = timeline_.counted && counted_tokens_ > 0 ? counted_tokens_ : pieces;
  if (counted_tokens_ == 0) timeline_.counted = false;
}

}  // namespace reckoner::loadgen
