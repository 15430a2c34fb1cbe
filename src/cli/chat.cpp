#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cli/interrupt.h"

namespace reckoner {
namespace {

constexpr const char* kHelp = "/new starts a new conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer";

enum class Read { line, end, interrupted };

class LineReader {
 public:
  // The next line without its newline. Interrupted: Ctrl-C; what was typed so far is gone.
  Read next(std::string& line) {
    const InterruptGuard interrupt;
    for (;;) {
      const std::size_t newline = buffer_.find('\n');
      if (newline != std::string::npos) {
        line = buffer_.substr(0, newline);
        buffer_.erase(0, newline + 1);
        return Read::line;
      }
      char bytes[4096];
      const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
      if (interrupt.interrupted()) {
        buffer_.clear();
        return Read::interrupted;
      }
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Read::end;
      buffer_.append(bytes, static_cast<std::size_t>(count));
    }
  }

 private:
  std::string buffer_;
};

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

// "/word" and nothing else. A question may start with a slash too.
bool looks_like_command(const std::string& line) { return line.starts_with('/') && line.find_first_of(" /", 1) == std::string::npos; }

void ask(Console& console, Conversation& conversation, const std::string& line, const AnswerConversation& answer) {
  const Conversation before = conversation;
  conversation.add("user", line);
  const Status status = answer(conversation);
  if (status) return;
  console.error(status.error());
  conversation = before;
}

}  // namespace

Result<int> chat(Console& console, const Conversation& first, const AnswerConversation& answer) {
  console.note(kHelp);
  LineReader reader;
  Conversation conversation = first;
  for (std::string line;;) {
    console.plain("> ");
    const Read read = reader.next(line);
    if (read != Read::line) console.plain("\n");
    if (read == Read::end) return 0;
    if (read == Read::interrupted) {
      console.note("/exit or Ctrl-D ends the chat");
    } else if (line == "/exit") {
      return 0;
    } else if (line == "/new") {
      conversation = first;
      console.note("a new conversation");
    } else if (looks_like_command(line)) {
      console.note(kHelp);
    } else if (!is_blank(line)) {
      ask(console, conversation, line, answer);
    }
  }
}

}  // namespace reckoner
