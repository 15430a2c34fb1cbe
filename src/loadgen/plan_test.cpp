// The plan: arrivals, data sets, request bodies, addresses.
#include "loadgen/plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "loadgen/arrivals.h"
#include "loadgen/url.h"
#include "loadgen/words.h"

namespace reckoner::loadgen {
namespace {

namespace json = boost::json;

TEST(Arrivals, AllAtOnce) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(arrival_times(3, infinity, 1, 0), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(arrival_times(0, 5, 1, 0).empty());
}

// A gamma distribution of shape k and mean m has variance m^2 / k. The mean of n gaps has a standard error of m / sqrt(k n); that of
// their variance is below m^2 / k * sqrt((2 + 6 / k) / (n - 1)) * 1.01. Five of each are allowed.
TEST(Arrivals, MeanAndVariance) {
  constexpr std::int64_t kCount = 20001;
  constexpr double kRate = 4;
  for (const double burstiness : {0.5, 1.0, 2.0, 8.0}) {
    const std::vector<double> times = arrival_times(kCount, kRate, burstiness, 7);
    EXPECT_EQ(times.front(), 0);
    const double n = kCount - 1;
    const double mean = times.back() / n;
    double variance = 0;
    for (std::size_t i = 1; i < times.size(); ++i) {
      ASSERT_GE(times[i], times[i - 1]);
      variance += std::pow(times[i] - times[i - 1] - mean, 2) / (n - 1);
    }
    const double expected = 1 / (kRate * kRate * burstiness);
    EXPECT_NEAR(mean, 1 / kRate, 5 / (kRate * std::sqrt(burstiness * n))) << burstiness;
    EXPECT_NEAR(variance, expected, 5.05 * expected * std::sqrt((2 + 6 / burstiness) / (n - 1))) << burstiness;
  }
}

TEST(Arrivals, SeedsDecide) {
  EXPECT_EQ(arrival_times(10, 3, 1, 5), arrival_times(10, 3, 1, 5));
  EXPECT_NE(arrival_times(10, 3, 1, 5), arrival_times(10, 3, 1, 6));
}

TEST(Dataset, RandomPromptsShareNoBeginning) {
  LoadOptions options;
  options.range_ratio = 0.5;
  options.input_tokens = 20;
  options.output_tokens = 10;
  const std::vector<Sample> samples = random_samples(options, 500, {.per_word = 1});
  std::set<std::string> tags;
  std::set<std::int64_t> lengths;
  for (const Sample& sample : samples) {
    tags.insert(sample.prompt.substr(0, sample.prompt.find(' ')));
    const auto words = std::count(sample.prompt.begin(), sample.prompt.end(), ' ');
    EXPECT_GE(words, 10);
    EXPECT_LE(words, 30);
    lengths.insert(words);
    EXPECT_GE(sample.max_tokens, 5);
    EXPECT_LE(sample.max_tokens, 15);
  }
  EXPECT_EQ(tags.size(), samples.size());
  EXPECT_EQ(lengths.size(), 21u);  // every length from 10 to 30 among 500
  EXPECT_EQ(random_samples(options, 500, {.per_word = 1})[7].prompt, samples[7].prompt);
  options.seed = 1;
  EXPECT_NE(random_samples(options, 500, {.per_word = 1})[7].prompt, samples[7].prompt);
}

TEST(Dataset, SharedPrefixes) {
  LoadOptions options;
  options.dataset = DatasetKind::shared_prefix;
  options.num_prefixes = 3;
  options.prefix_tokens = 40;
  options.input_tokens = 10;
  const std::vector<Sample> samples = random_samples(options, 7, {.per_word = 2});
  const auto beginning = [&](std::size_t i) { return samples[i].prompt.substr(0, 100); };
  EXPECT_EQ(beginning(0), beginning(3));
  EXPECT_EQ(beginning(0), beginning(6));
  EXPECT_NE(beginning(0).substr(0, 8), beginning(1).substr(0, 8));
  EXPECT_NE(samples[0].prompt, samples[3].prompt);
  // 20 words and their tag, 5 words and theirs.
  EXPECT_EQ(std::count(samples[0].prompt.begin(), samples[0].prompt.end(), ' '), 20 + 1 + 5);
}

TEST(Dataset, TokenScale) {
  // A template of 7 tokens around the words, 1.5 tokens each.
  const TokenScale scale = token_scale(10, 22, 30, 52);
  EXPECT_DOUBLE_EQ(scale.per_word, 1.5);
  EXPECT_DOUBLE_EQ(scale.overhead, 7);
  EXPECT_EQ(words_for(307, scale), 200);
  EXPECT_EQ(words_for(3, scale), 1);
}

class DatasetFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<std::vector<Sample>> read(const std::string& text, const LoadOptions& options = {}) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_samples(path_, options);
  }
  void expect_error(const std::string& text, const std::string& line, const std::string& part, const LoadOptions& options = {}) {
    const auto samples = read(text, options);
    ASSERT_FALSE(samples.ok()) << text;
    EXPECT_NE(samples.error().what.find(path_.string() + line), std::string::npos) << samples.error().what;
    EXPECT_NE(samples.error().what.find(part), std::string::npos) << samples.error().what;
  }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("reckoner_loadgen_" + std::to_string(getpid()) + ".jsonl");
};

TEST_F(DatasetFile, Lines) {
  LoadOptions options;
  options.output_tokens = 77;
  const auto samples = read(
      "{\"prompt\": \"one\", \"output_tokens\": 5}\n\n{\"prompt\": \"two\", \"max_tokens\": 6}\r\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9\"}], \"id\": 3}",
      options);
  ASSERT_TRUE(samples.ok()) << samples.error().message();
  ASSERT_EQ(samples->size(), 3u);
  EXPECT_EQ((*samples)[0].prompt, "one");
  EXPECT_EQ((*samples)[0].max_tokens, 5);
  EXPECT_EQ((*samples)[1].max_tokens, 6);
  EXPECT_EQ((*samples)[2].max_tokens, 77);
  EXPECT_EQ((*samples)[2].messages_json, "[{\"role\":\"user\",\"content\":\"h\xC3\xA9\"}]");
  EXPECT_EQ(repeated(*samples, 0).size(), 3u);
  EXPECT_EQ(repeated(*samples, 5)[4].prompt, "two");
  EXPECT_EQ(repeated(*samples, 2).size(), 2u);
}

TEST_F(DatasetFile, BadLinesAreNamed) {
  const std::string good = "{\"prompt\": \"one\"}\n";
  expect_error(good + "{\"prompt\": \n", ":2", "");
  expect_error(good + "\n{\"text\": \"a\"}\n", ":3", "neither 'prompt' nor 'messages'");
  expect_error("{\"prompt\": \"a\", \"messages\": []}\n", ":1", "both");
  expect_error("{\"prompt\": 5}\n", ":1", "expected a string");
  expect_error("{\"messages\": []}\n", ":1", "no message");
  expect_error("{\"prompt\": \"a\", \"output_tokens\": 0}\n", ":1", "output_tokens");
  expect_error("\n\n", "", "nothing in it");
  LoadOptions completions;
  completions.api = Api::completions;
  expect_error("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", ":1", "completions take a prompt", completions);
  EXPECT_FALSE(read_samples("/nowhere/at/all.jsonl", {}).ok());
}

TEST(Plan, Bodies) {
  LoadOptions options;
  options.model = "m";
  options.ignore_eos = true;
  const json::value chat = json::parse(request_body(options, {.prompt = "a \"b\"", .max_tokens = 9}, ContinuousUsage::on));
  EXPECT_EQ(chat, json::parse(R"({"model":"m","messages":[{"role":"user","content":"a \"b\""}],"max_tokens":9,"temperature":0E0,
    "ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})"));
  options = {.api = Api::completions, .model = "m", .temperature = {}};
  const json::value text = json::parse(request_body(options, {.prompt = "p", .max_tokens = 1}, ContinuousUsage::off));
  EXPECT_EQ(text, json::parse(R"({"model":"m","prompt":"p","max_tokens":1,"stream":true,"stream_options":{"include_usage":true}})"));
  const Sample messages = {.messages_json = R"([{"role":"system","content":"s"}])", .max_tokens = 1};
  EXPECT_EQ(json::parse(request_body({}, messages, ContinuousUsage::off)).at("messages"), json::parse(messages.messages_json));
}

TEST(Url, Forms) {
  const auto text = [](const char* url) {
    const Result<Url> parsed = parse_url(url);
    return parsed ? parsed->text() : "error";
  };
  EXPECT_EQ(text("http://127.0.0.1:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(text("http://127.0.0.1:8000/"), "http://127.0.0.1:8000");
  EXPECT_EQ(text("http://127.0.0.1:8000/v1/"), "http://127.0.0.1:8000");
  EXPECT_EQ(text("localhost:99"), "http://localhost:99");
  EXPECT_EQ(text("https://example.org/gateway/v1"), "https://example.org/gateway");
  EXPECT_EQ(parse_url("https://example.org")->port, "443");
  EXPECT_EQ(parse_url("http://[::1]:80")->host, "::1");
  EXPECT_EQ(text("http://[::1]:8000"), "http://[::1]:8000");
  for (const char* bad : {"", "ftp://a", "http://", "http://a:0", "http://a:x", "http://a b", "http://a?x", "http://u@h", "http://[::1",
                          "http://[::1]80", "http://a:70000", "http://a\r\nX: y"}) {
    EXPECT_EQ(text(bad), "error") << bad;
  }
}

}  // namespace
}  // namespace reckoner::loadgen
