#include "loadgen/sse_parser.h"

#include <algorithm>

namespace reckoner::loadgen {

bool SseParser::feed(std::string_view bytes, const std::function<bool(const SseEvent&)>& take) {
  while (!bytes.empty() && !stopped_) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + event_.data.size() + end > max_event_bytes_) {
      stopped_ = true;
      break;
    }
    line_.append(bytes.substr(0, end));
    if (end == bytes.size()) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!end_line(take)) stopped_ = true;
  }
  return !stopped_;
}

bool SseParser::end_line(const std::function<bool(const SseEvent&)>& take) {
  if (first_line_ && line_.starts_with("\xEF\xBB\xBF")) line_.erase(0, 3);
  first_line_ = false;
  if (!line_.empty()) {
    read_field();
    line_.clear();
    return true;
  }
  const SseEvent event = std::move(event_);
  const bool complete = has_data_;
  event_ = {};
  has_data_ = false;
  return !complete || take(event);
}

void SseParser::read_field() {
  const std::string_view line = line_;
  const std::size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  } else if (field == "event") {
    event_.name = value;
  }
}

}  // namespace reckoner::loadgen
