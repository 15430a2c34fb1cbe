// What request bodies mean, and what is said of those that mean nothing.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/requests/chat_request.h"
#include "server/requests/completion_request.h"

namespace reckoner {
namespace {

RequestLimits limits() {
  RequestLimits limits{.vocab = 1000, .max_context = 4096};
  limits.defaults.temperature = 0.6;
  limits.defaults.top_p = 0.95;
  return limits;
}

std::string chat(std::string_view more) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + std::string(more.empty() ? "" : ",") + std::string(more) + "}";
}

struct Refused {
  const char* name;
  std::string body;
  const char* param;  // the field that is named
  const char* part;   // of the message
};

std::vector<Refused> refused_chats() {
  return {
      {"nothing", "", "", "expected JSON"},
      {"blank", "  \n", "", "expected JSON"},
      {"cut off", R"({"messages":[{"role":"user","cont)", "", "line 1"},
      {"two documents", chat("") + chat(""), "", "line 1"},
      {"an array", "[]", "", "expected an object"},
      {"a number", "3", "", "expected an object"},
      {"a key twice", R"({"messages":[],"messages":[]})", "", "twice"},
      {"no messages", "{}", "messages", "missing"},
      {"messages null", R"({"messages":null})", "messages", "missing"},
      {"no message", R"({"messages":[]})", "messages", "at least one"},
      {"messages as text", R"({"messages":"hi"})", "messages", "expected an array"},
      {"a message as text", R"({"messages":["hi"]})", "messages[0]", "expected an object"},
      {"no role", R"({"messages":[{"content":"x"}]})", "messages[0].role", "missing"},
      {"wrong role", R"({"messages":[{"role":"boss","content":"x"}]})", "messages[0].role", "'developer'"},
      {"no content", R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing"},
      {"content as number", R"({"messages":[{"role":"user","content":7}]})", "messages[0].content", "a string or an array"},
      {"an image", R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
       "messages[0].content[0].type", "image_url"},
      {"a part without text", R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text", "missing"},
      {"a user that calls", R"({"messages":[{"role":"user","content":"x","tool_calls":[]}]})", "messages[0].tool_calls", "assistant"},
      {"arguments that are no JSON", R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "JSON text of an object"},
      {"arguments that are a list", R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "JSON text of an object"},
      {"unknown message field", R"({"messages":[{"role":"user","content":"x","colour":1}]})", "messages[0].colour", "not known"},
      {"misspelled field", chat(R"("max_token":5)"), "max_token", "did you mean 'max_tokens'?"},
      {"unknown field", chat(R"("frobnicate_everything":5)"), "frobnicate_everything", "leave it out"},
      {"temperature below", chat(R"("temperature":-0.1)"), "temperature", "from 0 to"},
      {"temperature as text", chat(R"("temperature":"hot")"), "temperature", "expected a number"},
      {"top_p above", chat(R"("top_p":1.5)"), "top_p", "from 0 to 1"},
      {"top_k fraction", chat(R"("top_k":1.5)"), "top_k", "an integer"},
      {"min_p above", chat(R"("min_p":2)"), "min_p", "from 0 to 1"},
      {"presence above", chat(R"("presence_penalty":3)"), "presence_penalty", "from -2 to 2"},
      {"frequency below", chat(R"("frequency_penalty":-3)"), "frequency_penalty", "from -2 to 2"},
      {"repetition zero", chat(R"("repetition_penalty":0)"), "repetition_penalty", "a number from"},
      {"max_tokens zero", chat(R"("max_tokens":0)"), "max_tokens", "from 1 to 4096"},
      {"max_tokens above", chat(R"("max_tokens":5000)"), "max_tokens", "from 1 to 4096"},
      {"max_tokens huge", chat(R"("max_tokens":1e300)"), "max_tokens", "an integer"},
      {"max tokens twice", chat(R"("max_tokens":5,"max_completion_tokens":6)"), "", "mean the same"},
      {"min_tokens below", chat(R"("min_tokens":-1)"), "min_tokens", "from 0"},
      {"n zero", chat(R"("n":0)"), "n", "from 1 to 128"},
      {"n above", chat(R"("n":1000)"), "n", "from 1 to 128"},
      {"stop empty", chat(R"("stop":"")"), "stop", "empty"},
      {"stop number", chat(R"("stop":3)"), "stop", "a string or an array"},
      {"stop inner", chat(R"("stop":["a",3])"), "stop[1]", "expected a string"},
      {"stop many", chat(R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])"), "stop", "at most 16"},
      {"stop id", chat(R"("stop_token_ids":[1000])"), "stop_token_ids[0]", "from 0 to 999"},
      {"bias key", chat(R"("logit_bias":{"x":1})"), "logit_bias.x", "token id below 1000"},
      {"bias id", chat(R"("logit_bias":{"1000":1})"), "logit_bias.1000", "token id below 1000"},
      {"bias value", chat(R"("logit_bias":{"1":101})"), "logit_bias.1", "from -100 to 100"},
      {"seed text", chat(R"("seed":"a")"), "seed", "an integer"},
      {"stream text", chat(R"("stream":"yes")"), "stream", "true or false"},
      {"options without stream", chat(R"("stream_options":{"include_usage":true})"), "stream_options", "stream to true"},
      {"unknown stream option", chat(R"("stream":true,"stream_options":{"usage":true})"), "stream_options.usage", "not known"},
      {"top_logprobs alone", chat(R"("top_logprobs":3)"), "top_logprobs", "logprobs to true"},
      {"top_logprobs above", chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "from 0 to 20"},
      {"logprobs number", chat(R"("logprobs":3)"), "logprobs", "true or false"},
      {"tools text", chat(R"("tools":"x")"), "tools", "an array"},
      {"tool type", chat(R"("tools":[{"type":"web","function":{"name":"f"}}])"), "tools[0].type", "function"},
      {"tool name", chat(R"("tools":[{"type":"function","function":{"name":""}}])"), "tools[0].function.name", "1 to 256"},
      {"tool twice", chat(R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"),
       "tools[1]", "two tools 'f'"},
      {"parameters", chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"), "tools[0].function.parameters",
       "JSON schema"},
      {"choice word", chat(R"("tool_choice":"some")"), "tool_choice", "'required'"},
      {"choice without tools", chat(R"("tool_choice":"required")"), "tool_choice", "no tools"},
      {"choice of nothing", chat(R"("tool_choice":{"type":"function","function":{"name":"g"}})"), "tool_choice.function.name",
       "no tool 'g'"},
      {"format type", chat(R"("response_format":{"type":"xml"})"), "response_format.type", "'json_schema'"},
      {"format schema", chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":3}})"),
       "response_format.json_schema.schema", "JSON schema"},
      {"format twice", chat(R"("response_format":{"type":"text"},"structured_outputs":{"regex":"a"})"), "structured_outputs",
       "one of the two"},
      {"kwargs", chat(R"("chat_template_kwargs":[])"), "chat_template_kwargs", "an object"},
      {"effort", chat(R"("reasoning_effort":"huge")"), "reasoning_effort", "'medium'"},
      {"modality", chat(R"("modalities":["text","audio"])"), "modalities[1]", "audio"},
      {"functions", chat(R"("functions":[{"name":"f"}])"), "functions", "not supported"},
      {"best_of", chat(R"("best_of":3)"), "best_of", "not supported"},
      {"beam search", chat(R"("use_beam_search":true)"), "use_beam_search", "not supported"},
      {"half a surrogate", chat(R"("user":"\ud800")"), "", "line 1"},
      {"not UTF-8", chat("\"user\":\"\xff\xfe\""), "", "line 1"},
      {"a control character", chat("\"user\":\"\x01\""), "", "line 1"},
      {"a deep nest", std::string(5000, '['), "", "deep"},
      {"a number that overflows", chat(R"("temperature":1e999)"), "temperature", "number"},
  };
}

TEST(ChatRequests, EachMistakeIsNamed) {
  for (const Refused& one : refused_chats()) {
    SCOPED_TRACE(one.name);
    const Result<ChatRequest> request = read_chat_request(one.body, limits());
    if (request.ok()) {
      ADD_FAILURE() << "was accepted";
      continue;
    }
    const ApiError error = to_api_error(request.error());
    EXPECT_EQ(error.param, one.param) << error.message;
    EXPECT_NE(error.message.find(one.part), std::string::npos) << error.message;
  }
}

TEST(ChatRequests, DefaultsAreTheModels) {
  const ChatRequest request = read_chat_request(chat(""), limits()).value();
  EXPECT_EQ(request.options.sampling.temperature, 0.6);
  EXPECT_EQ(request.options.sampling.top_p, 0.95);
  EXPECT_EQ(request.options.max_tokens, 0);
  EXPECT_FALSE(request.options.has_seed);
  EXPECT_FALSE(request.options.logprobs);
  EXPECT_FALSE(request.options.stream);
  EXPECT_EQ(request.options.n, 1);
  EXPECT_TRUE(request.parallel_tool_calls);
}

TEST(ChatRequests, EveryFieldIsRead) {
  const ChatRequest request =
      read_chat_request(
          chat(R"("model":"m","temperature":0,"top_p":0.5,"top_k":7,"min_p":0.25,"repetition_penalty":1.5,"presence_penalty":-1,)"
               R"("frequency_penalty":2,"seed":-5,"logit_bias":{"3":-100,"999":1.5},"stream":true,"n":3,"stop":["a","b"],)"
               R"("stream_options":{"include_usage":true},"stop_token_ids":[4],"min_tokens":2,"ignore_eos":true,"max_completion_tokens":9,)"
               R"("logprobs":true,"top_logprobs":5,"parallel_tool_calls":false,"tool_choice":"none","user":"u",)"
               R"("reasoning_effort":"none","chat_template_kwargs":{"a":1})"),
          limits())
          .value();
  const GenerationOptions& options = request.options;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(options.sampling.temperature, 0);
  EXPECT_EQ(options.sampling.top_p, 0.5);
  EXPECT_EQ(options.sampling.top_k, 7);
  EXPECT_EQ(options.sampling.min_p, 0.25);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(options.sampling.presence_penalty, -1);
  EXPECT_EQ(options.sampling.frequency_penalty, 2);
  EXPECT_TRUE(options.has_seed);
  EXPECT_EQ(options.sampling.seed, static_cast<std::uint64_t>(-5));
  EXPECT_EQ(options.sampling.logit_bias, (std::map<std::int32_t, double>{{3, -100}, {999, 1.5}}));
  EXPECT_TRUE(options.stream);
  EXPECT_TRUE(options.include_usage);
  EXPECT_EQ(options.n, 3);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.stop_token_ids, std::vector<std::int32_t>{4});
  EXPECT_EQ(options.min_tokens, 2);
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.max_tokens, 9);
  EXPECT_EQ(options.logprobs, 5);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::none);
  EXPECT_EQ(boost::json::parse(request.template_kwargs_json),
            boost::json::parse(R"({"reasoning_effort":"none","enable_thinking":false,"a":1})"));
}

TEST(ChatRequests, NeutralValuesOfWhatIsNotSupportedAreFine) {
  EXPECT_TRUE(read_chat_request(chat(R"("best_of":1,"use_beam_search":false,"functions":[],"length_penalty":1.0,"stop":null,)"
                                     R"("audio":null,"logit_bias":null,"tools":[],"response_format":{"type":"text"})"),
                                limits())
                  .ok());
}

TEST(ChatRequests, MessagesForTheTemplate) {
  const ChatRequest request =
      read_chat_request(R"({"messages":[{"role":"developer","content":"be"},)"
                        R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},)"
                        R"({"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1","type":"function",)"
                        R"("function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"ok"}]})",
                        limits())
          .value();
  EXPECT_EQ(boost::json::parse(messages_json(request.messages)),
            boost::json::parse(R"([{"role":"system","content":"be"},{"role":"user","content":"a\nb","name":"n"},)"
                               R"({"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"1","type":"function",)"
                               R"("function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"ok","tool_call_id":"1"}])"));
}

TEST(CompletionRequests, PromptsOfEveryKind) {
  const auto prompts = [](std::string_view prompt) {
    return read_completion_request(R"({"prompt":)" + std::string(prompt) + "}", limits()).value().prompts;
  };
  using Ids = std::vector<std::int32_t>;
  using Prompts = std::vector<CompletionPrompt>;
  EXPECT_EQ(prompts(R"("a")"), (Prompts{"a"}));
  EXPECT_EQ(prompts("[1,2]"), (Prompts{Ids{1, 2}}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (Prompts{"a", "b"}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (Prompts{Ids{1}, Ids{2, 3}}));
}

TEST(CompletionRequests, EachMistakeIsNamed) {
  const std::vector<Refused> cases = {
      {"no prompt", "{}", "prompt", "missing"},
      {"empty list", R"({"prompt":[]})", "prompt", "found none"},
      {"number", R"({"prompt":5})", "prompt", "a string or an array"},
      {"id above", R"({"prompt":[1000]})", "prompt[0]", "from 0 to 999"},
      {"id below", R"({"prompt":[[-1]]})", "prompt[0][0]", "from 0 to 999"},
      {"mixed", R"({"prompt":["a",5]})", "prompt[1]", "a string or an array"},
      {"deeper", R"({"prompt":[[["a"]]]})", "prompt[0][0]", "an integer"},
      {"logprobs", R"({"prompt":"a","logprobs":50})", "logprobs", "from 0 to 20"},
      {"suffix", R"({"prompt":"a","suffix":"b"})", "suffix", "not supported"},
      {"messages", R"({"prompt":"a","messages":[]})", "messages", "not known"},
  };
  for (const Refused& one : cases) {
    SCOPED_TRACE(one.name);
    const Result<CompletionRequest> request = read_completion_request(one.body, limits());
    if (request.ok()) {
      ADD_FAILURE() << "was accepted";
      continue;
    }
    const ApiError error = to_api_error(request.error());
    EXPECT_EQ(error.param, one.param) << error.message;
    EXPECT_NE(error.message.find(one.part), std::string::npos) << error.message;
  }
}

TEST(ApiErrors, HaveOpenAiShape) {
  const ApiError error{.status = 404, .message = "no \"x\"", .param = "model", .code = "model_not_found"};
  EXPECT_EQ(boost::json::parse(error_json(error)),
            boost::json::parse(R"({"error":{"message":"no \"x\"","type":"not_found_error","param":"model","code":"model_not_found"}})"));
  EXPECT_EQ(boost::json::parse(error_json({.message = "m"})),
            boost::json::parse(R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})"));
}

}  // namespace
}  // namespace reckoner
