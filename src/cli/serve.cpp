// reckoner serve: answers over HTTP as OpenAI's API does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/bad_step.h"
#include "cli/server_runner.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Serves MODEL over HTTP with OpenAI's API (and Anthropic's messages), to many clients at once.\n"
    "The address goes to stdout when the first request may come, everything else to stderr.\n"
    "On SIGTERM or Ctrl-C running requests finish, new ones get 503; a second one ends at once.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner serve models/pocket\n"
    "  reckoner serve models/pocket --host 0.0.0.0 --port 80 --api-key \"$KEY\"\n"
    "  curl http://127.0.0.1:8000/v1/chat/completions -d \\\n"
    "    '{\"messages\": [{\"role\": \"user\", \"content\": \"Define lantern.\"}], \"temperature\": 0}'";

void add_address_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--host", options.host, "Address to listen on; 0.0.0.0: all (default: 127.0.0.1)")->option_text("ADDRESS")->group("HTTP");
  accept_range(app.add_option("--port", options.port, "Port; 0: any that is free (default: 8000)")->group("HTTP"), 0, 65535);
  app.add_option("--model-name", options.model_names, "What clients call the model; may be repeated (default: the\nfolder's name)")
      ->option_text("NAME")
      ->allow_extra_args(false)
      ->group("HTTP");
  app.add_option("--api-key", options.api_key, "Ask clients for this key (default: RECKONER_API_KEY, if set)")
      ->envname("RECKONER_API_KEY")
      ->option_text("KEY")
      ->group("HTTP");
  app.add_option("--cors-origin", options.cors_origin, "Let web pages of this origin ask, or * of any")
      ->option_text("ORIGIN")
      ->group("HTTP");
  app.add_option("--tls-cert", options.tls_certificate, "Certificate chain in PEM: serves HTTPS")->option_text("FILE")->group("HTTP");
  app.add_option("--tls-key", options.tls_key, "Its private key in PEM")->option_text("FILE")->group("HTTP");
}

void add_limit_options(CLI::App& app, ServeOptions& options) {
  const auto limit = [&](const char* name, std::int64_t& value, const char* about, std::int64_t low, std::int64_t high) {
    accept_range(app.add_option(name, value, fmt::format("{} (default: {})", about, value))->group("Limits"), low, high);
  };
  limit("--max-sequences", options.max_sequences, "Requests that run at a time", 1, 4096);
  limit("--max-queue", options.max_queue, "Requests that wait; more get 429", 0, 1 << 20);
  limit("--max-connections", options.max_connections, "Open connections; more get 503", 1, 1 << 20);
  limit("--max-body-mb", options.max_body_mb, "Largest request, in MB", 1, 1024);
  limit("--request-timeout", options.request_timeout_s, "Seconds for a request to arrive", 1, 86400);
  limit("--write-timeout", options.write_timeout_s, "Seconds for a client to take what is sent", 1, 86400);
  limit("--drain-timeout", options.drain_timeout_s, "Seconds for running requests to finish at the end", 0, 86400);
  limit("--http-threads", options.http_threads, "Threads for HTTP, templates and tokens", 1, 256);
  accept_range(app.add_option("--cache-tokens", options.cache_tokens,
                              "Tokens of all requests together (default: 4 contexts,\nor what half of the free memory holds)")
                   ->group("Limits"),
               1, std::int64_t{1} << 40);
}

Action add_serve(CLI::App& app) {
  const auto options = std::make_shared<ServeOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  add_address_options(app, *options);
  add_limit_options(app, *options);
  add_machine_options(app, options->machine);
  add_device_options(app, options->machine);
  add_context_option(app, options->limits);
  accept_range(app.add_option("--chunk", options->limits.chunk, "Tokens a step at most (default: 512)")->group("Machine"), 2, 65536);
  add_trace_dir_option(app, options->trace_dir);
  app.add_flag("-q,--quiet", options->quiet, "Print nothing but the address and errors")->group("Machine");
  app.add_option("--inject-nan", options->inject_nan)->group("");  // hidden: kernels that go wrong, for trials to find
  return [options](Console& console) { return serve(*options, console); };
}

}  // namespace

const Subcommand kServe = {
    .name = "serve", .summary = "Serve a model over HTTP, with OpenAI's API", .example = "reckoner serve models/pocket", .add = add_serve};

}  // namespace reckoner
