#include "loadgen/server_probe.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "loadgen/answer_reader.h"
#include "loadgen/load_run.h"
#include "loadgen/words.h"

namespace reckoner::loadgen {
namespace {

namespace json = boost::json;

// Apart from the prompts of the load.
constexpr std::uint64_t kProbeNumber = std::uint64_t{1} << 41;
constexpr std::int64_t kFewWords = 16;
constexpr std::int64_t kManyWords = 192;

std::string string_at(const std::string& text, const char* pointer) {
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error) return {};
  const json::value* found = root.find_pointer(pointer, error);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

std::string server_version(HttpClient& client) {
  for (const char* path : {"/server_info", "/version"}) {
    const Result<HttpAnswer> answer = client.fetch("GET", path);
    if (!answer || answer->status != 200) continue;
    for (const char* pointer : {"/version", "/engine/version", "/server/version"}) {
      std::string version = string_at(answer->body, pointer);
      if (!version.empty()) return version;
    }
  }
  return {};
}

Timeline ask(HttpClient& client, const LoadOptions& options, ContinuousUsage usage, std::int64_t words) {
  const Sample sample{.prompt = random_text(words, options.seed, kProbeNumber + static_cast<std::uint64_t>(words)), .max_tokens = 4};
  const std::vector<PlannedRequest> plan = {{.body = request_body(options, sample, usage)}};
  return run_load(client, options.api, plan, 0, {}).timelines.front();
}

Error refused(const HttpClient& client, const Failure& failure) {
  if (failure.status == 0 || failure.status == 200) return unreachable(client.url(), failure);
  const bool key = failure.status == 401 || failure.status == 403;
  const bool path = failure.status == 404 || failure.status == 405;
  return Error{fmt::format("{}: a first request was answered with status {}: {}", client.url().text(), failure.status, failure.message),
               key    ? "give the server's key with --api-key or in OPENAI_API_KEY"
               : path ? "check the address, --endpoint and --model"
                      : "change what the message names; `reckoner bench serve --help` lists the options"};
}

}  // namespace

Result<std::string> find_model(HttpClient& client, const LoadOptions& options) {
  const HttpAnswer answer = TRY(client.fetch("GET", "/v1/models"));
  if (answer.status == 401 || answer.status == 403) {
    return Error{fmt::format("{}: the server asks for a key: {}", client.url().text(), error_message(answer.body)),
                 "give it with --api-key or in OPENAI_API_KEY"};
  }
  if (!options.model.empty()) return options.model;
  const std::string model = answer.status == 200 ? string_at(answer.body, "/data/0/id") : std::string();
  if (model.empty()) {
    return Error{fmt::format("{}: /v1/models lists no model (status {})", client.url().text(), answer.status),
                 "check the address, or name the model with --model"};
  }
  return model;
}

Result<ServerFacts> probe_server(HttpClient& client, const LoadOptions& options) {
  ServerFacts facts{.model = options.model, .version = server_version(client)};
  LoadOptions probing = options;
  probing.ignore_eos = false;
  Timeline few = ask(client, probing, facts.usage, kFewWords);
  const auto refuses = [&] { return few.failure && (few.failure->status == 400 || few.failure->status == 422); };
  if (refuses()) {
    // It may not know the option of usage in every piece.
    facts.usage = ContinuousUsage::off;
    few = ask(client, probing, facts.usage, kFewWords);
  }
  // A model may have nothing to say to random words; then the load may still have other prompts.
  if (few.failure && few.failure->kind != FailureKind::empty) return refused(client, *few.failure);
  facts.counts_tokens = few.input_tokens > 0;
  if (options.dataset == DatasetKind::file || !facts.counts_tokens) return facts;
  const Timeline many = ask(client, probing, facts.usage, kManyWords);
  if (many.failure && many.failure->kind != FailureKind::empty) return refused(client, *many.failure);
  facts.scale = token_scale(kFewWords, few.input_tokens, kManyWords, many.input_tokens);
  return facts;
}

}  // namespace reckoner::loadgen
