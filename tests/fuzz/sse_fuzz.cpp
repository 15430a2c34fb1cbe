// Bytes as a stream of events: however it is cut the events are the same, within the limit, and equal to what a plain reading of the
// whole text gives. Then the same bytes as the answer of a server.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "loadgen/answer_reader.h"
#include "loadgen/sse_parser.h"

namespace {

using namespace reckoner::loadgen;

// What random bytes would not come upon.
constexpr std::string_view kWords[] = {"data: ",
                                       "data:",
                                       "event: ",
                                       "\n\n",
                                       "\r\n\r\n",
                                       "\r",
                                       "[DONE]",
                                       "\xEF\xBB\xBF",
                                       "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
                                       "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}",
                                       "{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":-2}}",
                                       "{\"choices\":[{\"text\":\"b\"}],\"usage\":{\"completion_tokens\":9223372036854775807}}",
                                       "{\"error\":{\"message\":\"x\"}}",
                                       "{\"error\":[]}",
                                       "{\"choices\":[5]}",
                                       "{\"choices\":{\"a\":[null]},\"usage\":[]}"};

std::string text_of(const std::uint8_t* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] >= 0xF0) {
      text += kWords[data[i] - 0xF0];
    } else {
      text += static_cast<char>(data[i]);
    }
  }
  return text;
}

struct Events {
  std::vector<std::pair<std::string, std::string>> list;  // name, data
  bool fine = true;
  bool operator==(const Events&) const = default;
};

Events parse(std::string_view text, std::size_t piece, std::size_t limit) {
  SseParser parser(limit);
  Events events;
  while (!text.empty() && events.fine) {
    const std::size_t size = std::min(piece, text.size());
    events.fine = parser.feed(text.substr(0, size), [&](const SseEvent& event) {
      CHECK(event.data.size() <= limit);
      events.list.emplace_back(event.name, event.data);
      return true;
    });
    text.remove_prefix(size);
  }
  return events;
}

// The whole text at once, line by line, without a limit.
Events plain(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  for (std::size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos; ++at) text.erase(at, 1);
  std::replace(text.begin(), text.end(), '\r', '\n');
  Events events;
  std::string name, data;
  for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    const std::string line = text.substr(0, end);
    const std::size_t colon = line.find(':');
    const std::string field = line.substr(0, colon);
    std::string value = colon == std::string::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.erase(0, 1);
    if (field == "data") data += value + '\n';
    if (field == "event") name = value;
    if (!line.empty()) continue;
    if (!data.empty()) events.list.emplace_back(name, data.substr(0, data.size() - 1));
    name = data = "";
  }
  return events;
}

void read_answer(std::string_view text, std::size_t piece) {
  Timeline timeline{.started = true};
  AnswerReader reader(timeline);
  reader.head(200, "text/event-stream");
  bool goes_on = true;
  for (double at_s = 0; !text.empty() && goes_on; ++at_s) {
    const std::size_t size = std::min(piece, text.size());
    goes_on = reader.body(text.substr(0, size), at_s);
    text.remove_prefix(size);
  }
  reader.end(1e6);
  if (!goes_on) CHECK(timeline.failure.has_value());
  CHECK(timeline.output_tokens >= 0 && timeline.input_tokens >= 0);
  if (timeline.ok()) CHECK(!timeline.chunks.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 4096) return 0;
  const std::string text = text_of(data + 1, size - 1);
  const std::size_t piece = 1 + data[0] % 32u;
  const Events whole = parse(text, std::max<std::size_t>(text.size(), 1), SseParser::kMaxEventBytes);
  CHECK(whole == parse(text, 1, SseParser::kMaxEventBytes));
  CHECK(whole == parse(text, piece, SseParser::kMaxEventBytes));
  CHECK(whole == plain(text));
  const Events limited = parse(text, piece, 1 + data[0]);
  CHECK(std::equal(limited.list.begin(), limited.list.end(), whole.list.begin()));
  CHECK(!limited.fine || limited.list.size() == whole.list.size());
  read_answer(text, piece);
  read_answer(text, 1);
  return 0;
}
