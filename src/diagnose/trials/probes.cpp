#include "diagnose/trials/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <optional>

#include "diagnose/trials/answers.h"
#include "diagnose/trials/log_rules.h"
#include "loadgen/answer_reader.h"
#include "loadgen/http_client.h"
#include "loadgen/words.h"

namespace reckoner::trials {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTurn{50};
constexpr std::size_t kMaxAnswerBytes = std::size_t{16} << 20;
constexpr std::size_t kShownBytes = 300;
constexpr std::uint64_t kPromptSeed = 20;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// One answer, taken apart.
struct Answer {
  std::string text;
  std::string tool_arguments;  // of the first call
  bool has_tool_call = false;
  std::string problem;  // the body is no answer
};

Answer read_answer(const std::string& body) {
  const Answer none{.problem = "the body is no answer of an OpenAI-compatible server: " + shown_text(body, kShownBytes)};
  json::error_code error;
  const json::value root = json::parse(body, error);
  if (error) return none;
  const json::value* choice = root.find_pointer("/choices/0", error);
  if (choice == nullptr || !choice->is_object()) return none;
  Answer answer{.text = text_at(choice->get_object(), "text")};
  const json::value* message = choice->get_object().if_contains("message");
  if (message == nullptr || !message->is_object()) return answer;
  answer.text = text_at(message->get_object(), "content");
  for (const char* key : {"reasoning_content", "reasoning"}) {
    if (answer.text.empty()) answer.text = text_at(message->get_object(), key);
  }
  const json::value* function = message->find_pointer("/tool_calls/0/function", error);
  answer.has_tool_call = function != nullptr && function->is_object();
  if (answer.has_tool_call) answer.tool_arguments = text_at(function->get_object(), "arguments");
  return answer;
}

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

// The prompts of a probe: requests with equal prompts should have equal answers.
std::vector<std::string> prompts_of(const ProbeSpec& spec) {
  const auto or_own = [&](std::string_view own) { return spec.prompt.empty() ? std::string(own) : spec.prompt; };
  const auto many_words = [&] { return loadgen::random_text(spec.words, kPromptSeed, 1); };
  const auto requests = static_cast<std::size_t>(spec.requests);
  switch (spec.kind) {
    case ProbeKind::health:
      return {};
    case ProbeKind::long_answer:
      return {or_own("Describe the life of a river from its source to the sea, in detail.")};
    case ProbeKind::long_prompt:
      return {many_words() + "\n\n" + or_own("What are these words about?")};
    case ProbeKind::repeated_prefix:
      return {many_words() + "\n\nWhat is the first word?", many_words() + "\n\nWhat is the last word?",
              many_words() + "\n\nWhat is the first word?"};
    case ProbeKind::concurrent: {
      std::vector<std::string> prompts;
      for (std::size_t i = 0; i < requests; ++i) prompts.push_back(fmt::format("{} ({})", or_own("Name a colour and what has it."), i + 1));
      return prompts;
    }
    case ProbeKind::non_ascii:
      return {
          or_own("Repeat this line exactly: Gr\xC3\xBC\xC3\x9F"
                 "e, \xE4\xBD\xA0\xE5\xA5\xBD, \xED\x95\x9C\xEA\xB8\x80, \xD0\xBC\xD0\xB8\xD1\x80, "
                 "\xF0\x9F\x99\x82\xF0\x9F\x9A\x80")};
    case ProbeKind::tool_call:
      return {or_own("What is the weather in Paris?")};
    case ProbeKind::determinism:
      return std::vector<std::string>(requests, or_own("Count from one to ten in words."));
    case ProbeKind::short_answer:
    case ProbeKind::expect:
      break;
  }
  return {or_own("Say hello.")};
}

std::int64_t max_tokens_of(const ProbeSpec& spec) {
  if (spec.max_tokens > 0) return spec.max_tokens;
  if (spec.kind == ProbeKind::long_answer) return 400;
  return spec.kind == ProbeKind::tool_call ? 200 : 48;
}

std::string request_body(const ProbeSpec& spec, const std::string& model, const std::string& prompt) {
  json::object body{{"model", model}, {"max_tokens", max_tokens_of(spec)}, {"temperature", 0}, {"stream", false}};
  if (spec.api == Api::completions) {
    body["prompt"] = prompt;
  } else {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt}}};
  }
  if (spec.kind == ProbeKind::tool_call) {
    body["tools"] = json::parse(kTools);
    body["tool_choice"] = "required";
  }
  if (!spec.extra.empty()) {
    const json::value extra = json::parse(spec.extra);
    for (const auto& member : extra.get_object()) body[member.key()] = member.value();
  }
  return json::serialize(body);
}

struct Judgement {
  Outcome outcome = Outcome::pass;
  std::string detail;
};

// What a line of the log would mean in the body of an error.
Outcome outcome_of_error(const std::string& message) {
  for (const LogRule& rule : kLogRules) {
    if (rule.outcome == Outcome::no_start || rule.outcome == Outcome::crash) continue;
    const std::regex expression(std::string(rule.expression), std::regex::ECMAScript | std::regex::icase);
    if (std::regex_search(message, expression)) return rule.outcome;
  }
  return Outcome::refused;
}

Judgement judge_reply(const Reply& reply, double limit_s) {
  if (reply.timed_out) return {Outcome::hang, fmt::format("no answer within {:.0f} s", limit_s)};
  if (!reply.complete) return {Outcome::crash, "the connection was lost: " + reply.failure};
  if (reply.status == 200) return {};
  const std::string message = shown_text(loadgen::error_message(reply.body), kShownBytes);
  return {outcome_of_error(message), fmt::format("status {}: {}", reply.status, message)};
}

Judgement judge_tool_call(const Answer& answer) {
  if (!answer.has_tool_call) return {Outcome::wrong, "no tool call, although one was required"};
  json::error_code error;
  const json::value arguments = json::parse(answer.tool_arguments, error);
  if (error || !arguments.is_object())
    return {Outcome::wrong, "the call's arguments are no JSON object: " + shown_text(answer.tool_arguments, 80)};
  return {};
}

Judgement judge_answer(const ProbeSpec& spec, const Answer& answer) {
  if (!answer.problem.empty()) return {Outcome::refused, answer.problem};
  if (spec.kind == ProbeKind::tool_call) return judge_tool_call(answer);
  if (answer.text.find_first_not_of(" \t\r\n") == std::string::npos) return {Outcome::empty, "an answer without text"};
  if (const std::string complaint = complaint_about(answer.text); !complaint.empty()) return {Outcome::garbage, complaint};
  if (spec.answer && !std::regex_search(answer.text, *spec.answer)) {
    return {Outcome::wrong, fmt::format("the answer does not contain '{}'", spec.answer_text)};
  }
  return {};
}

Judgement judge(const ProbeSpec& spec, const std::vector<Reply>& replies, const std::vector<Answer>& answers, double limit_s) {
  for (const Reply& reply : replies) {
    if (Judgement found = judge_reply(reply, limit_s); found.outcome != Outcome::pass) return found;
  }
  for (const Answer& answer : answers) {
    if (Judgement found = judge_answer(spec, answer); found.outcome != Outcome::pass) return found;
  }
  if (spec.kind == ProbeKind::determinism) {
    const auto same = std::count_if(answers.begin(), answers.end(), [&](const Answer& one) { return one.text == answers.front().text; });
    if (same != static_cast<std::ptrdiff_t>(answers.size())) {
      return {Outcome::wrong, fmt::format("{} of {} answers to one request at temperature 0 differ from the first one",
                                          static_cast<std::ptrdiff_t>(answers.size()) - same, answers.size())};
    }
  }
  for (const Reply& reply : replies) {
    if (spec.max_s > 0 && reply.seconds > spec.max_s) {
      return {Outcome::slow, fmt::format("an answer took {:.2f} s, {:.2f} s are allowed", reply.seconds, spec.max_s)};
    }
  }
  return {};
}

}  // namespace

struct ProbeClient::Connection {
  loadgen::Url url;
  std::string api_key;
  std::unique_ptr<loadgen::HttpClient> client;
};

ProbeClient::ProbeClient(const Target& target, std::int64_t port, std::function<bool()> interrupted)
    : connection_(std::make_unique<Connection>()), interrupted_(std::move(interrupted)), model_(target.model) {
  connection_->url = {.scheme = loadgen::Scheme::http, .host = target.host, .port = std::to_string(port)};
  connection_->api_key = target.api_key;
}
ProbeClient::~ProbeClient() = default;

std::vector<Reply> ProbeClient::send(const std::vector<Request>& requests, double limit_s) {
  std::vector<Reply> replies(requests.size());
  // A client of its own each time: after a time-out its connections are of no use.
  constexpr double kLonger = 10;
  auto opened = loadgen::HttpClient::open(connection_->url, {.api_key = connection_->api_key, .timeout_s = limit_s + kLonger});
  if (!opened) {
    for (Reply& reply : replies) reply.failure = opened.error().what;
    return replies;
  }
  loadgen::HttpClient& client = **opened;
  const Clock::time_point start = Clock::now();
  std::size_t ended = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Reply& reply = replies[i];
    loadgen::HttpEvents events;
    events.head = [&reply](int status, std::string_view) { reply.status = status; };
    events.body = [&reply](std::string_view bytes) {
      reply.body += bytes;
      return reply.body.size() < kMaxAnswerBytes;
    };
    events.end = [&reply, &ended, start](loadgen::ExchangeEnd end, const loadgen::Failure& why) {
      reply.complete = end == loadgen::ExchangeEnd::complete;
      reply.failure = why.message;
      reply.seconds = seconds_since(start);
      ++ended;
    };
    client.start(requests[i].method, requests[i].path, requests[i].body, events);
  }
  client.io().restart();
  bool timed_out = false;
  while (ended < requests.size()) {
    client.io().run_for(kTurn);
    if (client.io().stopped() && ended < requests.size()) break;  // nothing is pending: cannot be, but must not spin
    if (timed_out || ended == requests.size()) continue;
    timed_out = seconds_since(start) > limit_s;
    if (!timed_out && !interrupted_()) continue;
    for (Reply& reply : replies) reply.timed_out = timed_out && reply.seconds == 0;
    timed_out = true;
    client.interrupt();
  }
  return replies;
}

Reply ProbeClient::get(const std::string& path, double limit_s) { return send({{.method = "GET", .path = path}}, limit_s).front(); }

const std::string& ProbeClient::model(double limit_s) {
  if (!model_.empty()) return model_;
  const Reply reply = get("/v1/models", limit_s);
  if (reply.complete && reply.status == 200) model_ = field_text(reply.body, "data.0.id");
  if (model_.empty()) model_ = "default";
  return model_;
}

ProbeResult run_probe(ProbeClient& client, const ProbeSpec& spec, const Limits& limits) {
  ProbeResult result{.name = spec.name, .kind = std::string(name(spec.kind))};
  const Clock::time_point start = Clock::now();
  std::vector<Reply> replies;
  std::vector<Answer> answers;
  if (spec.kind == ProbeKind::health) {
    replies.push_back(client.get(spec.path, limits.request_s));
  } else {
    std::vector<Request> requests;
    const std::string path = spec.api == Api::chat ? "/v1/chat/completions" : "/v1/completions";
    const std::string& model = client.model(limits.request_s);
    for (const std::string& prompt : prompts_of(spec)) requests.push_back({.path = path, .body = request_body(spec, model, prompt)});
    if (spec.kind == ProbeKind::concurrent) {
      replies = client.send(requests, limits.request_s);
    } else {
      for (const Request& request : requests) {
        replies.push_back(client.send({request}, limits.request_s).front());
        if (!replies.back().complete) break;
      }
    }
    for (const Reply& reply : replies) {
      if (reply.complete && reply.status == 200) answers.push_back(read_answer(reply.body));
    }
  }
  const Judgement found = judge(spec, replies, answers, limits.request_s);
  result.outcome = found.outcome;
  result.detail = found.detail;
  result.seconds = seconds_since(start);
  std::string all;
  for (const Answer& answer : answers) all += answer.text + answer.tool_arguments + '\0';
  if (!answers.empty()) result.fingerprint = fingerprint_of(all);
  // The first answer that shows what is wrong, else the first one.
  for (const Answer& answer : answers) {
    const std::string shown = shown_text(answer.text.empty() ? answer.tool_arguments : answer.text, kShownBytes);
    if (result.answer.empty()) result.answer = shown;
    if (judge_answer(spec, answer).outcome == found.outcome && found.outcome != Outcome::pass) {
      result.answer = shown;
      break;
    }
  }
  return result;
}

namespace {

// The member, element, or first element with a member of this value that `step` names; nullptr: there is none.
const json::value* step_into(const json::value& value, std::string_view step) {
  if (value.is_object()) return value.get_object().if_contains(step);
  if (!value.is_array()) return nullptr;
  const json::array& array = value.get_array();
  if (step.starts_with('[') && step.ends_with(']') && step.find('=') != std::string_view::npos) {
    const std::string_view key = step.substr(1, step.find('=') - 1);
    const std::string_view wanted = step.substr(step.find('=') + 1, step.size() - step.find('=') - 2);
    for (const json::value& element : array) {
      if (element.is_object() && text_at(element.get_object(), key) == wanted) return &element;
    }
    return nullptr;
  }
  std::size_t index = 0;
  const auto parsed = std::from_chars(step.data(), step.data() + step.size(), index);
  return parsed.ec == std::errc() && index < array.size() ? &array[index] : nullptr;
}

}  // namespace

std::string field_text(const std::string& text, const std::string& field) {
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error) return {};
  const json::value* found = &root;
  for (std::size_t at = 0; found != nullptr && at <= field.size();) {
    const std::size_t end = std::min(field.find('.', at), field.size());
    found = step_into(*found, std::string_view(field).substr(at, end - at));
    at = end + 1;
  }
  if (found == nullptr) return {};
  return found->is_string() ? std::string(found->get_string()) : json::serialize(*found);
}

}  // namespace reckoner::trials
