// SseParser: bytes of a text/event-stream, however they are cut, become events.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace reckoner::loadgen {

struct SseEvent {
  std::string name;  // "event:", usually empty
  std::string data;  // "data:" lines, joined by newlines
};

// Follows the format of the HTML standard: lines end with \n, \r or \r\n; a byte order mark at the start is skipped; comments, ids,
// retries and unknown fields are ignored; an event without data is none; so is one that the stream ends in.
class SseParser {
 public:
  static constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;

  explicit SseParser(std::size_t max_event_bytes = kMaxEventBytes) : max_event_bytes_(max_event_bytes) {}

  // Gives every event that `bytes` complete to `take`, until that returns false. False: an event is too large, or `take` had enough;
  // then nothing more is parsed.
  bool feed(std::string_view bytes, const std::function<bool(const SseEvent&)>& take);
  // Whether an event was begun and not ended.
  bool is_inside_event() const { return !line_.empty() || has_data_; }

 private:
  bool end_line(const std::function<bool(const SseEvent&)>& take);
  void read_field();

  std::size_t max_event_bytes_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was \r: a \n belongs to it
  bool first_line_ = true;
  bool stopped_ = false;
};

}  // namespace reckoner::loadgen
