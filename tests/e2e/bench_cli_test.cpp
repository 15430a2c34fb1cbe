// `reckoner bench serve` against `reckoner serve`, both as programs.
#include "cli_support.h"

namespace reckoner {
namespace {

// Serves the pocket model, runs `bench serve` on it with these options, ends the server; exit status and output are the bench's.
ProgramRun bench(const Scratch& scratch, const std::string& options, const std::string& serve_options = "") {
  const std::string address = scratch.write("address", "");
  return run_shell("$RECKONER serve " + std::string(kModel) + " --port 0 --quiet " + serve_options + " > " + address +
                   " & server=$!\n"
                   "while kill -0 $server && [ ! -s " +
                   address +
                   " ]; do sleep 0.05; done\n"
                   "$RECKONER bench serve $(cat " +
                   address + ") " + options +
                   "; status=$?\n"
                   "kill $server; wait $server; exit $status");
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BenchCli, RandomChat) {
  const Scratch scratch;
  const std::string json_file = scratch.write("result.json", "");
  const std::string html_file = scratch.write("result.html", "");
  const ProgramRun run = bench(scratch,
                               "--num-prompts 6 --random-input-len 60 --random-output-len 8 --ignore-eos --max-concurrency 3 "
                               "--num-warmups 1 --goodput ttft:1e9 --metric-percentiles 50,99 --save-result " +
                                   json_file + " --html " + html_file);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("6 of 6"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("time to first token"), std::string::npos) << run.out;
  const JsonDocument json = parsed(content(json_file));
  EXPECT_EQ(number_at(json, {"completed"}), 6);
  EXPECT_EQ(number_at(json, {"failed"}), 0);
  EXPECT_EQ(text_at(json, {"model_id"}), "pocket");
  EXPECT_EQ(number_at(json, {"total_output_tokens"}), 6 * 8);
  EXPECT_EQ(number_at(json, {"max_concurrent_requests"}), 3);
  EXPECT_EQ(number_at(json, {"connections"}), 2);  // two more than the warm-up left open
  EXPECT_GT(number_at(json, {"mean_ttft_ms"}), 0);
  EXPECT_GE(number_at(json, {"p99_e2el_ms"}), number_at(json, {"p50_e2el_ms"}));
  EXPECT_EQ(number_at(json, {"request_goodput"}), number_at(json, {"request_throughput"}));
  // Measured from the server's counts: near what was asked for (words differ in their tokens), and what their sum is.
  double sum = 0;
  for (const JsonNode& length : list_at(json, {"input_lens"})) sum += length.as_float().value();
  EXPECT_EQ(sum, number_at(json, {"total_input_tokens"}));
  EXPECT_NEAR(sum / 6, 60, 15);
  const std::string html = content(html_file);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_EQ(html.find("http-equiv"), std::string::npos);
  EXPECT_EQ(html.find(" src="), std::string::npos);
}

TEST(BenchCli, FileOfPrompts) {
  const Scratch scratch;
  const std::string prompts = scratch.write("prompts.jsonl",
                                            "{\"prompt\": \"Define lantern.\", \"output_tokens\": 3}\n"
                                            "{\"prompt\": \"Define compass.\", \"output_tokens\": 5}\n");
  const std::string json_file = scratch.write("result.json", "");
  const ProgramRun run = bench(scratch, "--endpoint completions --dataset-name file --dataset-path " + prompts +
                                            " --ignore-eos --request-rate 50 --save-detailed --quiet --save-result " + json_file);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const JsonDocument json = parsed(content(json_file));
  const std::vector<JsonNode> lengths = list_at(json, {"output_lens"});
  ASSERT_EQ(lengths.size(), 2u);
  EXPECT_EQ(lengths[0].as_float().value(), 3);
  EXPECT_EQ(lengths[1].as_float().value(), 5);
  EXPECT_EQ(list_at(json, {"generated_texts"}).size(), 2u);
}

TEST(BenchCli, RefusedRequestsAreLoud) {
  const Scratch scratch;
  const std::string json_file = scratch.write("result.json", "");
  const ProgramRun run =
      bench(scratch, "--num-prompts 12 --random-input-len 60 --random-output-len 48 --ignore-eos --save-result " + json_file,
            "--max-sequences 1 --max-queue 1");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("of 12 requests failed"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("x HTTP 429"), std::string::npos) << run.err;
  EXPECT_NE(run.out.find("completed requests only"), std::string::npos) << run.out;
  const JsonDocument json = parsed(content(json_file));
  EXPECT_EQ(number_at(json, {"completed"}) + number_at(json, {"failed"}), 12);
  EXPECT_GT(number_at(json, {"failed"}), 0);
}

TEST(BenchCli, Errors) {
  const Scratch scratch;
  const std::string bad = scratch.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"promt\": \"b\"}\n");
  expect_error({"bench"}, 2, {"a command is missing", "reckoner bench --help"});
  expect_error({"bench", "serve"}, 2, {"URL", "reckoner bench serve --help"});
  expect_error({"bench", "serve", "http://127.0.0.1:1"}, 1, {"127.0.0.1:1", "start the server"});
  expect_error({"bench", "serve", "ftp://a"}, 1, {"expected http:// or https://"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--goodput", "ttft"}, 2, {"METRIC:MILLISECONDS"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--request-rate", "0"}, 2, {"above 0"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--request-rat", "1"}, 2, {"did you mean --request-rate?"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--dataset-name", "file"}, 2, {"--dataset-path"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--dataset-name", "file", "--dataset-path", bad}, 1, {bad + ":2", "prompt"});
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--html", "/nowhere/at/all.html"}, 1, {"/nowhere/at/all.html"});
  // A load that cannot begin leaves earlier results alone, and no empty file.
  const std::string earlier = scratch.write("earlier.json", "earlier");
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--save-result", earlier}, 1, {"start the server"});
  EXPECT_EQ(content(earlier), "earlier");
  expect_error({"bench", "serve", "http://127.0.0.1:1", "--save-result", earlier + ".new"}, 1, {"start the server"});
  EXPECT_FALSE(fs::exists(earlier + ".new"));
}

}  // namespace
}  // namespace reckoner
