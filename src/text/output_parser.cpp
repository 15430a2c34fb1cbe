#include "text/output_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/check.h"
#include "text/json_text.h"
#include "text/output_syntax.h"
#include "text/tool_schemas.h"

namespace reckoner {
namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxHeadBytes = 512;  // more than this behind the opening mark is no call's head
constexpr std::size_t kMaxParameterHeadBytes = 1024;

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_blank(std::string_view text) { return text.find_first_not_of(kSpace) == std::string_view::npos; }

// How many characters at the end of `text` may be the beginning of `mark`.
std::size_t possible_mark(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  text.remove_prefix(text.size() - std::min(text.size(), mark.size() - 1));
  for (std::size_t at = text.find(mark.front()); at < text.size(); ++at) {
    if (mark.starts_with(text.substr(at))) return text.size() - at;
  }
  return 0;
}

// Bytes at the end of `text` that begin a character and do not end it.
std::size_t cut_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0u) == 0x80u) continue;
    const std::size_t whole = byte >= 0xF0u ? 4 : byte >= 0xE0u ? 3 : byte >= 0xC0u ? 2 : 1;
    return whole > back ? back : 0;
  }
  return 0;
}

std::string random_prefix() {
  std::random_device random;
  return fmt::format("call_{:08x}{:08x}_", random(), random());
}

}  // namespace

// Takes one byte after the other, so that it cannot matter how the text was cut. What is not certain yet waits in `held_` (the end of
// the text, where a mark may be arriving) or in `attempt_` (all of what may be a call).
class OutputParser::Machine {
 public:
  explicit Machine(const OutputParserOptions& options)
      : format_(options.format),
        syntax_(call_syntax(options.format)),
        tools_(ToolSchemas::parse(options.tools_json)),
        calls_allowed_(tools_.given() && options.format != OutputFormat::plain),
        id_prefix_(options.call_id_prefix.empty() ? random_prefix() : options.call_id_prefix),
        text_state_(options.start == OutputStart::reasoning ? State::reasoning : State::content) {
    const bool plain_answer = format_ == OutputFormat::plain && options.start == OutputStart::answer;
    state_ = plain_answer ? State::content : State::lead;
  }

  OutputDelta push(std::string_view text) {
    CHECK(!finished_, "text after the end of the output");
    cut_ += text;
    const std::string bytes = cut_.substr(0, cut_.size() - cut_character(cut_));
    cut_.erase(0, bytes.size());
    for (const char byte : bytes) take(byte);
    return std::exchange(out_, {});
  }

  OutputDelta finish() {
    if (std::exchange(finished_, true)) return {};
    for (const char byte : cut_) take(byte);
    // What was no call after all may hold the beginning of another.
    while (state_ == State::lead || state_ == State::attempt) state_ == State::lead ? end_lead() : fail_attempt();
    end_state();
    if (calls_ == 0) end_content();
    return std::exchange(out_, {});
  }

  bool reasoning() const { return text_state_ == State::reasoning; }

 private:
  enum class State {
    lead,  // nothing but white space, and what may be "<think>"
    reasoning,
    content,
    attempt,  // behind the mark that opens a section or a call, until the call's head is read
    between,  // in a call, between its parameters
    parameter_head,
    value_text,  // of a parameter, given out as it comes
    value_held,  // of a parameter, to be judged as a whole
    json,        // arguments that are JSON already
  };

  void take(char byte) {
    switch (state_) {
      case State::lead:
        return take_lead(byte);
      case State::reasoning:
        return take_reasoning(byte);
      case State::content:
        return take_content(byte);
      case State::attempt:
        return take_attempt(byte);
      case State::between:
        return take_between(byte);
      case State::parameter_head:
        return take_parameter_head(byte);
      case State::value_text:
        return take_value_text(byte);
      case State::value_held:
        return take_value_held(byte);
      case State::json:
        return take_json(byte);
    }
  }
  void take_all(std::string_view text) {
    for (const char byte : text) take(byte);
  }

  // Adds a byte to what is held back. If a mark is complete, it is removed and returned; otherwise what can be none of the marks any
  // more is moved to `certain`. With a mark, all that stood before it is.
  std::optional<std::size_t> take_until(std::initializer_list<std::string_view> marks, char byte, std::string& certain) {
    held_ += byte;
    std::size_t waiting = 0;
    std::size_t index = 0;
    for (const std::string_view mark : marks) {
      if (!mark.empty() && held_.ends_with(mark)) {
        certain = held_.substr(0, held_.size() - mark.size());
        held_.clear();
        return index;
      }
      waiting = std::max(waiting, possible_mark(held_, mark));
      ++index;
    }
    certain = held_.substr(0, held_.size() - waiting);
    held_.erase(0, certain.size());
    return std::nullopt;
  }

  // --- reasoning and content ---------------------------------------------------------------------------------------------------------

  void take_lead(char byte) {
    if (held_.empty() && is_space(byte)) {
      lead_space_ += byte;
      return;
    }
    held_ += byte;
    if (held_ == kThinkOpen) {
      held_.clear();
      state_ = text_state_ = State::reasoning;
    } else if (!kThinkOpen.starts_with(held_)) {
      end_lead();
    }
  }
  void end_lead() {
    state_ = text_state_;
    take_all(lead_space_ + std::exchange(held_, {}));
  }

  void take_reasoning(char byte) {
    std::string text;
    const auto mark = calls_allowed_ ? take_until({kThinkClose, syntax_.section_open, syntax_.call_open}, byte, text)
                                     : take_until({kThinkClose}, byte, text);
    give_reasoning(text);
    if (!mark) return;
    if (*mark > 0) return start_attempt(*mark == 1 ? syntax_.section_open : syntax_.call_open, State::reasoning);
    state_ = text_state_ = State::content;
    after_reasoning_ = true;
  }

  void take_content(char byte) {
    std::string text;
    if (!calls_allowed_) {
      text = byte;
      return give_content(text);
    }
    const std::string_view section_close = in_section_ ? syntax_.section_close : std::string_view();
    const auto mark = take_until({syntax_.section_open, syntax_.call_open, section_close}, byte, text);
    give_content(text);
    if (!mark) return;
    if (*mark == 2) {
      in_section_ = false;
    } else {
      start_attempt(*mark == 0 ? syntax_.section_open : syntax_.call_open, State::content);
    }
  }

  // White space at the beginning is dropped, at the end held back: it may be what stands before the closing tag.
  void give_reasoning(std::string_view text) {
    for (const char c : text) {
      if (is_space(c)) {
        if (reasoning_begun_) reasoning_space_ += c;
        continue;
      }
      reasoning_begun_ = true;
      out_.reasoning += std::exchange(reasoning_space_, {});
      out_.reasoning += c;
    }
  }

  // White space at the end is held back while a call may follow. At the beginning it is dropped after reasoning or a call.
  void give_content(std::string_view text) {
    for (const char c : text) {
      const bool drops = !content_begun_ && (after_reasoning_ || calls_ > 0);
      if (is_space(c)) {
        if (!drops) content_space_ += c;
        continue;
      }
      if (!drops) out_.content += content_space_;
      content_space_.clear();
      content_begun_ = true;
      out_.content += c;
    }
    if (!calls_allowed_) end_content();
  }
  void end_content() { out_.content += std::exchange(content_space_, {}); }

  void give_text(State where, std::string_view text) { where == State::reasoning ? give_reasoning(text) : give_content(text); }

  // --- what may be a call ------------------------------------------------------------------------------------------------------------

  void start_attempt(std::string_view mark, State from) {
    attempt_ = mark;
    opened_by_ = mark;
    call_open_at_ = mark == syntax_.call_open ? std::optional(std::size_t{0}) : std::nullopt;
    text_state_ = from;
    state_ = State::attempt;
  }

  void take_attempt(char byte) {
    attempt_ += byte;
    if (attempt_.size() > opened_by_.size() + kMaxHeadBytes) return fail_attempt();
    const std::string_view attempt = attempt_;
    if (!call_open_at_) {  // a section has to begin with a call
      const std::string_view rest = attempt.substr(opened_by_.size());
      const std::size_t first = std::min(rest.find_first_not_of(kSpace), rest.size());
      if (rest.substr(first) == syntax_.call_open) {
        call_open_at_ = opened_by_.size() + first;
      } else if (!syntax_.call_open.starts_with(rest.substr(first))) {
        fail_attempt();
      }
      return;
    }
    const std::string_view head = attempt.substr(*call_open_at_ + syntax_.call_open.size());
    HeadReading reading = read_call_head(format_, head);
    if (reading.state == HeadState::incomplete) return;
    // Thoughts may be about calls.
    const bool believable = text_state_ == State::content || tools_.has(reading.head.name);
    if (reading.state == HeadState::none || !believable) return fail_attempt();
    const std::string rest(head.substr(reading.size_bytes));
    start_call(std::move(reading.head));
    take_all(rest);
  }

  // It was no call: its opening mark is text, and what follows is looked at again.
  void fail_attempt() {
    const std::string attempt = std::exchange(attempt_, {});
    state_ = text_state_;
    give_text(text_state_, opened_by_);
    take_all(std::string_view(attempt).substr(opened_by_.size()));
  }

  // --- calls -------------------------------------------------------------------------------------------------------------------------

  void start_call(CallHead head) {
    in_section_ = in_section_ || opened_by_ == syntax_.section_open;
    attempt_.clear();
    reasoning_space_.clear();  // a call ends reasoning
    text_state_ = State::content;
    if (!content_begun_) content_space_.clear();
    const std::size_t index = calls_++;
    std::string id = head.id.empty() ? fmt::format("{}{}", id_prefix_, index) : head.id;
    out_.tool_calls.push_back({.index = index, .id = std::move(id), .name = head.name, .arguments = {}});
    tool_ = std::move(head.name);
    names_.clear();
    stray_ = false;
    if (syntax_.has_parameters()) {
      give_arguments("{");
      state_ = State::between;
    } else {
      json_ = JsonPrefix();
      json_begun_ = json_broken_ = false;
      tail_.clear();
      state_ = State::json;
    }
  }

  void give_arguments(std::string_view text) {
    const std::size_t index = calls_ - 1;
    if (out_.tool_calls.empty() || out_.tool_calls.back().index != index)
      out_.tool_calls.push_back({.index = index, .id = {}, .name = {}, .arguments = {}});
    out_.tool_calls.back().arguments += text;
  }

  // What follows a call in which `mark` was found: call_close, call_open (the call was not closed) or section_close.
  void leave_call(std::string_view mark) {
    state_ = State::content;
    if (mark == syntax_.section_close) in_section_ = false;
    if (mark == syntax_.call_open) start_attempt(mark, State::content);
  }

  // --- parameters --------------------------------------------------------------------------------------------------------------------

  void take_between(char byte) {
    const std::string_view marks[] = {syntax_.parameter_open, syntax_.call_close, syntax_.call_open, syntax_.section_close};
    std::string text;
    const auto mark = take_until({marks[0], marks[1], marks[2], marks[3]}, byte, text);
    give_stray(text);
    if (!mark) return;
    stray_ = false;
    if (*mark == 0) {
      state_ = State::parameter_head;
    } else {
      give_arguments("}");
      leave_call(marks[*mark]);
    }
  }

  // What stands between parameters and should not; the white space there is nothing.
  void give_stray(std::string_view text) {
    stray_ = stray_ || !is_blank(text);
    if (stray_) give_content(text);
  }

  void take_parameter_head(char byte) {
    held_ += byte;
    const std::string_view head = held_;
    if (head.ends_with(syntax_.call_close)) {
      give_content(syntax_.parameter_open);
      give_content(head.substr(0, head.size() - syntax_.call_close.size()));
      held_.clear();
      give_arguments("}");
      leave_call(syntax_.call_close);
    } else if (head.ends_with(syntax_.value_open)) {
      const auto read = read_parameter_head(format_, head.substr(0, head.size() - syntax_.value_open.size()));
      if (!read || !names_.insert(read->name).second) return fail_parameter_head();
      start_value(*read);
    } else if (head.size() > kMaxParameterHeadBytes) {
      fail_parameter_head();
    }
  }
  void fail_parameter_head() {
    give_content(syntax_.parameter_open);
    give_content(std::exchange(held_, {}));
    stray_ = true;
    state_ = State::between;
  }

  void start_value(const ParameterHead& head) {
    parameter_text_ = std::string(syntax_.parameter_open) + std::exchange(held_, {});
    parameter_ = head.name;
    types_ = head.kind == ValueKind::text   ? JsonTypes::string
             : head.kind == ValueKind::json ? JsonTypes::any
                                            : tools_.argument_types(tool_, head.name);
    // What the model itself calls JSON is a string only if it cannot be read.
    says_json_ = head.kind == ValueKind::json;
    if (types_ == JsonTypes::string) {
      start_text_value();
    } else {
      state_ = State::value_held;
    }
  }
  void start_text_value() {
    give_name();
    give_arguments("\"");
    state_ = State::value_text;
  }
  void give_name() { give_arguments((names_.size() > 1 ? ", " : "") + json_quoted(parameter_) + ": "); }

  void take_value_text(char byte) {
    std::string text;
    const auto mark = take_until({syntax_.value_close}, byte, text);
    give_escaped(text);
    if (!mark) return;
    give_arguments("\"");
    state_ = State::between;
  }
  void give_escaped(std::string_view text) {
    std::string escaped;
    append_json_escaped(escaped, text);
    if (!escaped.empty()) give_arguments(escaped);
  }

  void take_value_held(char byte) {
    held_ += byte;
    const std::string_view value = held_;
    if (value.ends_with(syntax_.value_close)) {
      give_name();
      const std::string_view text = value.substr(0, value.size() - syntax_.value_close.size());
      give_arguments(argument_json(says_json_ ? JsonTypes::any : types_, text, says_json_ ? Strings::quoted : Strings::raw));
      held_.clear();
      state_ = State::between;
    } else if (!says_json_ && allows(types_, JsonTypes::string)) {
      release_text_value();
    }
  }
  // A value that may be text or not can be given out once it cannot be anything else.
  void release_text_value() {
    const std::size_t certain = held_.size() - possible_mark(held_, syntax_.value_close);
    if (may_become_json(types_, std::string_view(held_).substr(0, certain))) return;
    const std::string text = std::exchange(held_, {});
    start_text_value();
    take_all(text);
  }

  // --- arguments that are JSON -------------------------------------------------------------------------------------------------------

  void take_json(char byte) {
    const std::string_view marks[] = {syntax_.call_close, syntax_.call_open, syntax_.section_close};
    std::string text;
    const auto mark = take_until({marks[0], marks[1], marks[2]}, byte, text);
    for (const char c : text) give_json(c);
    if (!mark) return;
    if (!json_begun_ && !json_broken_) give_arguments("{}");
    leave_call(marks[*mark]);
  }

  void give_json(char byte) {
    if (json_broken_) return give_content(std::string_view(&byte, 1));
    if (json_begun_ && json_.complete()) return give_tail(byte);
    if (!json_begun_ && is_space(byte)) return;
    if (json_.push(byte)) {
      json_begun_ = true;
      return give_arguments(std::string_view(&byte, 1));
    }
    json_broken_ = true;
    give_content(std::string_view(&byte, 1));
  }

  // Behind the JSON nothing but a fence's end may stand.
  void give_tail(char byte) {
    if (tail_.empty() && is_space(byte)) return;
    tail_ += byte;
    if (is_space(byte) || (format_ == OutputFormat::deepseek_v3 && kFence.starts_with(tail_))) return;
    json_broken_ = true;
    give_content(std::exchange(tail_, {}));
  }

  // --- the end -----------------------------------------------------------------------------------------------------------------------

  void end_state() {
    const std::string held = std::exchange(held_, {});
    switch (state_) {
      case State::lead:
      case State::attempt:
        return;
      case State::reasoning:
      case State::content:
        return give_text(state_, held);
      case State::between:
        give_stray(held);
        return give_arguments("}");
      case State::parameter_head:
        return give_content(std::string(syntax_.parameter_open) + held);
      case State::value_text:
        return give_escaped(held);
      case State::value_held:
        return give_content(parameter_text_ + held);
      case State::json:
        for (const char c : held) give_json(c);
        return;
    }
  }

  const OutputFormat format_;
  const CallSyntax& syntax_;
  const ToolSchemas tools_;
  const bool calls_allowed_;
  const std::string id_prefix_;
  OutputDelta out_;  // since the last push
  std::string cut_;  // the beginning of a character
  bool finished_ = false;

  State state_;
  State text_state_;  // reasoning or content: what text is when it is nothing else
  std::string held_;
  std::string lead_space_;
  bool reasoning_begun_ = false;
  std::string reasoning_space_;
  bool after_reasoning_ = false;
  bool content_begun_ = false;
  std::string content_space_;

  std::string attempt_;                      // from the mark on that may open a call
  std::string_view opened_by_;               // that mark
  std::optional<std::size_t> call_open_at_;  // in attempt_
  bool in_section_ = false;
  std::size_t calls_ = 0;

  std::string tool_;  // the call's
  std::set<std::string> names_;
  bool stray_ = false;
  std::string parameter_;
  std::string parameter_text_;  // its head as it was written
  JsonTypes types_ = JsonTypes::any;
  bool says_json_ = false;

  JsonPrefix json_;
  bool json_begun_ = false;
  bool json_broken_ = false;  // what follows is no part of it
  std::string tail_;          // behind the JSON
};

bool ends_with_tag(std::string_view text, std::string_view tag) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return last != std::string_view::npos && text.substr(0, last + 1).ends_with(tag);
}

OutputStart output_start_after(std::string_view prompt) {
  return ends_with_tag(prompt, kThinkOpen) ? OutputStart::reasoning : OutputStart::answer;
}

OutputParser OutputParser::open(const OutputParserOptions& options) { return OutputParser(std::make_unique<Machine>(options)); }
OutputParser::OutputParser(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

OutputDelta OutputParser::push(std::string_view text) { return machine_->push(text); }
OutputDelta OutputParser::finish() { return machine_->finish(); }
bool OutputParser::reasoning() const { return machine_->reasoning(); }

}  // namespace reckoner
