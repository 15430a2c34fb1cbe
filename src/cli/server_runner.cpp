#include "cli/server_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/mapped_file.h"
#include "cli/admit_kernels.h"
#include "cli/bad_step.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/runner.h"
#include "cli/session.h"
#include "cli/text_format.h"
#include "server/server.h"

namespace reckoner {
namespace {

using Seconds = std::chrono::seconds;

// Rows of a step that may be prompt tokens whose logprobs a client asked for.
constexpr std::int64_t kPromptLogprobRows = 64;

// As many full contexts as fit, up to four: more would rarely be used, fewer would make requests wait for each other.
std::int64_t choose_cache(const ServeOptions& options, const Session& session, std::int64_t context) {
  if (options.cache_tokens > 0) return std::max(options.cache_tokens, context);
  const std::int64_t free_bytes = session.free_bytes();
  if (free_bytes == 0) return context;
  const std::int64_t room = std::max<std::int64_t>(0, free_bytes - session.weight_bytes()) / 2 / session.cache_bytes_per_token();
  return std::max(context, std::min(4 * context, room));
}

Result<EngineLimits> choose_limits(const ServeOptions& options, Session& session) {
  const Model& model = *session.model;
  const ContextChoice context = TRY(choose_context(options.limits.context, {.longest = model.config.max_position_embeddings,
                                                                            .bytes_per_token = session.cache_bytes_per_token(),
                                                                            .weight_bytes = session.weight_bytes(),
                                                                            .free_bytes = session.free_bytes()}));
  const std::int64_t cache = choose_cache(options, session, context.tokens);
  // Each running request needs a row of a step, and a prompt one more.
  const std::int64_t chunk = std::max(options.limits.chunk, options.max_sequences + 1);
  session.settings.push_back({"context", fmt::format("{} tokens", context.tokens), "", context.why});
  session.settings.push_back({"cache", fmt::format("{} tokens", cache), "", options.cache_tokens > 0 ? "--cache-tokens" : ""});
  session.settings.push_back({"running requests", std::to_string(options.max_sequences), "", "--max-sequences"});
  session.settings.push_back({"waiting requests", std::to_string(options.max_queue), "", "--max-queue"});
  session.settings.push_back({"tokens a step", std::to_string(chunk), "",
                              chunk == options.limits.chunk ? "--chunk" : "--chunk, raised to hold a token of every running request"});
  return EngineLimits{.max_context = context.tokens,
                      .cache_tokens = cache,
                      .max_sequences = options.max_sequences,
                      .max_step_tokens = chunk,
                      .cache_type = session.cache_type,
                      .prompt_logprob_rows = kPromptLogprobRows};
}

HttpOptions http_options(const ServeOptions& options) {
  HttpOptions http{.host = options.host,
                   .port = static_cast<std::uint16_t>(options.port),
                   .threads = static_cast<int>(options.http_threads),
                   .tls_certificate = options.tls_certificate,
                   .tls_key = options.tls_key};
  http.limits.max_body_bytes = static_cast<std::size_t>(options.max_body_mb) << 20;
  http.limits.max_connections = static_cast<std::size_t>(options.max_connections);
  http.limits.request_timeout = Seconds(options.request_timeout_s);
  http.limits.write_timeout = Seconds(options.write_timeout_s);
  return http;
}

// "models/pocket/" is called "pocket" unless somebody says otherwise; a repository keeps its name.
std::vector<std::string> model_names(const ServeOptions& options, const Session& session) {
  if (!options.model_names.empty()) return options.model_names;
  if (!std::filesystem::exists(session.name)) return {session.name};
  const std::filesystem::path folder = std::filesystem::absolute(session.name).lexically_normal();
  const std::string name = folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
  return name == session.name ? std::vector<std::string>{name} : std::vector<std::string>{name, session.name};
}

// The template says best how answers are written.
std::string template_text(const Session& session, const Tokenizer& tokenizer) {
  if (tokenizer.prompt_format() != PromptFormat::chat_template) return "";
  const std::filesystem::path source = tokenizer.prompt_source();
  const Result<std::string> text =
      read_text_file(source.is_absolute() || std::filesystem::exists(source) ? source : session.folder / source, std::int64_t{64} << 20);
  return text ? *text : "";
}

ServerOptions server_options(const ServeOptions& options, const Session& session, const Tokenizer& tokenizer,
                             std::int64_t longest_request) {
  const ModelConfig& config = session.model->config;
  ServerOptions server{.http = http_options(options),
                       .settings = {.model_names = model_names(options, session),
                                    .api_key = options.api_key,
                                    .cors_origin = options.cors_origin,
                                    .version = RECKONER_VERSION,
                                    .effective = session.settings},
                       .limits = {.vocab = config.vocab_size, .max_context = longest_request, .defaults = config.generation},
                       .end_tokens = {},
                       .output_format = output_format_for(config.model_type, template_text(session, tokenizer)),
                       .max_queued = options.max_queue};
  for (const std::int64_t id : config.eos_token_ids) server.end_tokens.push_back(static_cast<std::int32_t>(id));
  return server;
}

// Lets running requests finish, for as long as was asked.
void drain(Server& server, const ServeOptions& options, const StopSignals& signals, Console& console) {
  const std::int64_t left = server.unanswered();
  server.drain();
  if (left > 0) console.note(fmt::format("shutting down: {} requests may finish within {} s", left, options.drain_timeout_s));
  const auto deadline = std::chrono::steady_clock::now() + Seconds(options.drain_timeout_s);
  while (server.unanswered() > 0 && std::chrono::steady_clock::now() < deadline) {
    if (signals.wait(std::chrono::milliseconds(50))) break;
  }
  if (server.unanswered() > 0) console.note(fmt::format("{} requests were cut off", server.unanswered()));
}

// With these kernels every request meets the fault.
Status inject_fault(const ServeOptions& options, const Session& session, Engine& engine) {
  if (options.inject_nan.empty()) return {};
  const std::size_t colon = options.inject_nan.find(':');
  const std::string rest = colon == std::string::npos ? "" : options.inject_nan.substr(colon + 1);
  const InjectedFault fault = TRY(parse_fault(rest, session.model->config.num_hidden_layers));
  if (session.kernels != options.inject_nan.substr(0, colon)) return {};
  engine.inject = fault;
  engine.inject.request = InjectedFault::kEveryRequest;
  return {};
}

}  // namespace

Result<int> serve(const ServeOptions& options, Console& console) {
  if (options.quiet) console.be_quiet();
  Session session = TRY(open_session(options.model, options.machine, console));
  const Tokenizer tokenizer = TRY(Tokenizer::load(session.folder));
  const EngineLimits limits = TRY(choose_limits(options, session));
  TRY(admit_kernels(session, options.machine, console));
  const double load_s = TRY(load_weights(session, console));
  std::unique_ptr<StepModel> model = TRY(make_step_model(session, session.precision, step_limits(limits), console));
  auto engine = std::make_unique<Engine>(std::move(model), limits);
  TRY(engine->status());
  trace_bad_steps(*engine, session, options.trace_dir, console);
  TRY(inject_fault(options, session, *engine));
  const ServerOptions server_settings = server_options(options, session, tokenizer, engine->longest_request());
  const StopSignals signals;
  const std::unique_ptr<Server> server = TRY(Server::start(server_settings, tokenizer, std::move(engine)));
  console.note(fmt::format("{}: {} of weights in {}{}; {} kernels, {}, context {}, {} requests at a time",
                           server_settings.settings.model_names.front(), bytes_text(static_cast<double>(session.model->weight_bytes)),
                           seconds_text(load_s), session.ranks_text(), session.kernels, session.precision_name, limits.max_context,
                           limits.max_sequences));
  TRY(console.print(server->address() + "\n"));
  while (!signals.wait(std::chrono::hours(1))) {}
  drain(*server, options, signals, console);
  return 0;
}

}  // namespace reckoner
