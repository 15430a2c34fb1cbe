// What a request says of length, choices and probabilities.
#include <fmt/format.h>

#include <cmath>

#include "test_server.h"

namespace reckoner {
namespace {

class Sampling : public ServerTest {};

// The answer would end after its 8 or so tokens; it must not before 40.
TEST_F(Sampling, MinTokensKeepsAnAnswerFromEnding) {
  start();
  const ClientResponse free = post("/v1/chat/completions", lantern(R"(,"max_tokens":60)"));
  ASSERT_LT(at(free.body, "/usage/completion_tokens").as_int64(), 40) << free.body;
  const ClientResponse held = post("/v1/chat/completions", lantern(R"(,"min_tokens":40,"max_tokens":60)"));
  ASSERT_EQ(held.status, 200) << held.body;
  EXPECT_GE(at(held.body, "/usage/completion_tokens").as_int64(), 40);
  EXPECT_TRUE(text_at(held.body, "/choices/0/message/content").starts_with(kLantern)) << held.body;
}

// At temperature 0 the chosen token is the most probable one; the alternatives are in order, and are probabilities.
TEST_F(Sampling, TopLogprobsAreSortedAndBeginWithTheChosenToken) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern(R"(,"logprobs":true,"top_logprobs":5)"));
  const boost::json::value content = at(response.body, "/choices/0/logprobs/content");
  ASSERT_TRUE(content.is_array() && !content.as_array().empty()) << response.body;
  for (const boost::json::value& token : content.as_array()) {
    const boost::json::array& top = token.at("top_logprobs").as_array();
    ASSERT_EQ(top.size(), 5u);
    EXPECT_EQ(top[0].at("token"), token.at("token"));
    EXPECT_EQ(top[0].at("logprob"), token.at("logprob"));
    double sum = 0;
    double last = 0;
    for (const boost::json::value& one : top) {
      const double logprob = one.at("logprob").to_number<double>();
      EXPECT_LE(logprob, last);
      last = logprob;
      sum += std::exp(logprob);
    }
    EXPECT_LE(sum, 1 + 1e-5);  // float sums of up to 4,096 terms
  }
}

TEST_F(Sampling, SeveralChoicesStreamSideBySide) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern(R"(,"n":3,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_TRUE(response.complete) << response.body;
  std::string texts[3], reasons[3];
  for (const std::string& event : event_data(response.body)) {
    if (event == "[DONE]" || at(event, "/choices/0").is_null()) continue;
    const auto index = static_cast<std::size_t>(at(event, "/choices/0/index").as_int64());
    ASSERT_LT(index, 3u);
    if (at(event, "/choices/0/delta/content").is_string()) texts[index] += text_at(event, "/choices/0/delta/content");
    if (at(event, "/choices/0/finish_reason").is_string()) reasons[index] += text_at(event, "/choices/0/finish_reason");
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i], kLantern) << i;
    EXPECT_EQ(reasons[i], "stop") << i;
  }
}

// What the model gives to a text as a prompt is what it gave to it as an answer.
TEST_F(Sampling, EchoedLogprobsAreThoseOfTheAnswer) {
  start();
  const auto complete = [&](std::string_view prompt, std::string_view more) {
    boost::json::object body{{"prompt", boost::json::string_view(prompt.data(), prompt.size())}, {"temperature", 0}, {"logprobs", 2}};
    std::string text = boost::json::serialize(body);
    text.back() = ',';
    return post("/v1/completions", text + std::string(more) + "}");
  };
  const std::string prompt = "[gMASK]<sop><|user|>Define lantern.<|assistant|></think>";
  const ClientResponse answered = complete(prompt, R"("max_tokens":5)");
  const ClientResponse echoed = complete(prompt + text_at(answered.body, "/choices/0/text"), R"("max_tokens":1,"echo":true)");
  const boost::json::value answer = at(answered.body, "/choices/0/logprobs/token_logprobs");
  const boost::json::value echo = at(echoed.body, "/choices/0/logprobs/token_logprobs");
  ASSERT_TRUE(answer.is_array() && echo.is_array()) << echoed.body;
  ASSERT_EQ(answer.as_array().size(), 5u);
  const boost::json::array& all = echo.as_array();
  ASSERT_EQ(all.size(), must(tokenizer->encode(prompt)).size() + 6);
  EXPECT_TRUE(all[0].is_null());  // nothing stands before the first token
  for (std::size_t i = 0; i < 5; ++i) {
    // The server's model runs in `fast` or `exact` in steps of other sizes: sums of another order.
    EXPECT_NEAR(all[all.size() - 6 + i].to_number<double>(), answer.as_array()[i].to_number<double>(), 1e-2) << i;
  }
}

}  // namespace
}  // namespace reckoner
