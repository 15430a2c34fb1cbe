// reckoner trace: looks into every op of a prompt.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>

#include "cli/bad_step.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/runner.h"
#include "cli/session.h"
#include "diagnose/trace/trace_report.h"
#include "kernels/cpu/catalogue.h"
#include "text/tokenizer.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Runs a prompt and some steps of the answer with a look at every op: range, rms and values that are\n"
    "not finite; how far fast is from exact; how routers spread tokens; how much attention a sparse\n"
    "layer keeps. A value that is not finite is followed to its origin: the op, the expert, the tensor,\n"
    "the file and the byte, and a bundle for `reckoner replay`. With --against the values are compared\n"
    "with another implementation's. Exit status 0 only if nothing was found.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner trace models/pocket \"Define lantern.\"\n"
    "  reckoner trace models/pocket --check --html trace.html\n"
    "  reckoner trace models/pocket --precision exact --save mine.safetensors\n"
    "  reckoner trace tests/golden/glm_moe_dsa --precision exact --against tests/golden/glm_moe_dsa/reference.safetensors";

constexpr const char* kDefaultPrompt = "Explain in two sentences why the sky is blue.";

struct TraceOptions {
  std::string model;
  std::string prompt = kDefaultPrompt;
  bool raw = false;
  std::string tokens;  // "1,2,3"
  std::int64_t decode = 4;
  std::int64_t chunk = 64;
  bool check = false;
  bool no_compare = false;
  std::string against;
  double tolerance = 0;  // 0: derived
  std::string save;
  std::string json;
  std::string html;
  std::string trace_dir;
  std::int64_t bundle_mb = 256;
  std::string inject_nan;
  MachineOptions machine;
};

Error token_error(std::int64_t vocab, const std::string& text) {
  return {fmt::format("--tokens: expected token ids below {} with commas between them, found '{}'", vocab, text),
          "for example --tokens 5,17,3"};
}

Result<std::vector<std::int32_t>> parse_tokens(const std::string& text, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at != end) {
    std::int32_t id = -1;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || id >= vocab || (next != end && *next != ',')) return token_error(vocab, text);
    ids.push_back(id);
    at = next == end ? end : next + 1;
  }
  return ids;
}

Result<std::vector<std::int32_t>> prompt_tokens(const TraceOptions& options, const Session& session,
                                                const std::optional<SafetensorsFile>& dump) {
  const std::int64_t vocab = session.model->config.vocab_size;
  if (dump) return trace::prompt_of(*dump, vocab);
  if (!options.tokens.empty()) return parse_tokens(options.tokens, vocab);
  const Tokenizer tokenizer = TRY(Tokenizer::load(session.folder));
  std::string text = options.prompt;
  if (!options.raw) {
    Conversation conversation;
    conversation.add("user", options.prompt);
    text = TRY(render(tokenizer, conversation.json(), {}));
  }
  const std::vector<TokenId> ids = TRY(tokenizer.encode(text));
  if (ids.empty()) return Error{"the prompt is empty", "give PROMPT"};
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

// What the model is run with; its weights are read as they are, bad scales and all: they may be what is looked for.
Result<trace::TraceWishes> wishes_for(const TraceOptions& options, const Session& session, std::vector<std::int32_t> prompt) {
  trace::TraceWishes wishes{.prompt = std::move(prompt), .decode_steps = options.decode, .chunk = options.chunk};
  const bool keeps = !options.save.empty() || !options.against.empty();
  if (!options.against.empty()) {
    wishes.decode_steps = 0;
    wishes.chunk = std::ssize(wishes.prompt);  // one step, as in the dump: slots of experts can be compared
  }
  wishes.compare_exact = options.no_compare ? trace::Wish::no : trace::Wish::yes;
  wishes.check_ops = options.check ? trace::Wish::yes : trace::Wish::no;
  wishes.keep_values = keeps ? trace::Wish::yes : trace::Wish::no;
  wishes.bundle.limits.bytes = options.bundle_mb << 20;
  wishes.bundle.about = {{"model", session.name},
                         {"device", session.on_gpu() ? session.gpu.memory->info().name : session.device.name},
                         {"precision", session.precision_name},
                         {"version", RECKONER_VERSION}};
  if (options.trace_dir != "off") {
    const std::filesystem::path folder = options.trace_dir.empty() ? default_trace_folder() : std::filesystem::path(options.trace_dir);
    std::error_code ignored;  // the bundle's own error says more
    std::filesystem::create_directories(folder, ignored);
    wishes.bundle.path = new_bundle_path(folder, "trace");
  }
  if (!options.inject_nan.empty()) {
    const InjectedFault fault = TRY(parse_fault(options.inject_nan, session.model->config.num_hidden_layers));
    wishes.fault.place = fault.place;
    wishes.fault_position = fault.position;
  }
  return wishes;
}

Result<trace::TraceReport> run_trace(const Session& session, trace::TraceWishes wishes, Console& console) {
  const trace::TraceSubject subject{.model = *session.model,
                                    .weights = session.weights(),
                                    .device = session.target(),
                                    .pool = *session.pool,
                                    .precision = session.precision,
                                    .cache_type = session.cache_type};
  const InterruptGuard interrupt;
  ProgressBar bar(console, "tracing");
  wishes.progress = [&](std::int64_t done, std::int64_t total) { bar.show_count(done, total, "tokens"); };
  wishes.interrupted = [&] { return interrupt.interrupted(); };
  return trace::trace(subject, wishes);
}

// On a GPU the weights have to be copied there, which refuses bad scales.
Status bring_weights(Session& session, Console& console) {
  if (!session.on_gpu()) return {};
  const Result<double> loaded = load_weights(session, console);
  if (loaded.ok()) return {};
  return Error{loaded.error().what, "trace it on the processor, which reads the weights as they are: --device cpu"};
}

Result<int> trace_model(const TraceOptions& options, Console& console) {
  Session session = TRY(open_session(options.model, options.machine, console));
  std::optional<SafetensorsFile> dump;
  if (!options.against.empty()) dump.emplace(TRY(SafetensorsFile::open(options.against)));
  std::vector<std::int32_t> prompt = TRY(prompt_tokens(options, session, dump));
  const trace::TraceWishes wishes = TRY(wishes_for(options, session, prompt));
  TRY(bring_weights(session, console));
  const trace::TraceReport report = TRY(run_trace(session, wishes, console));
  const std::int64_t layers = session.model->config.num_hidden_layers;
  std::optional<trace::AgainstReport> against;
  if (dump) {
    const double tolerance = options.tolerance > 0 ? options.tolerance : trace::row_tolerance(session.precision, layers);
    against.emplace(TRY(trace::compare_with(*dump, report, layers, tolerance)));
  }
  const trace::AgainstReport* const beside = against ? &*against : nullptr;
  const trace::TraceFacts facts{.model = session.name,
                                .device = session.on_gpu() ? session.gpu.memory->info().name : session.device.name,
                                .precision = session.precision_name,
                                .version = RECKONER_VERSION};
  if (!options.save.empty())
    TRY(report.values.save(options.save, prompt, {{"model", session.name}, {"precision", session.precision_name}}));
  if (!options.html.empty()) TRY(write_file(options.html, trace::trace_html(facts, report, beside)));
  if (options.json == "-") {
    TRY(console.print(trace::trace_json(facts, report, beside)));
  } else {
    if (!options.json.empty()) TRY(write_file(options.json, trace::trace_json(facts, report, beside)));
    TRY(console.print(trace::trace_text(facts, report, beside)));
  }
  const bool found = report.origin || report.wrong || (against && against->first);
  return found ? kExitFailed : 0;
}

void add_output_options(CLI::App& app, TraceOptions& options) {
  app.add_option("--html", options.html, "Write a page with a heat map of layers and ops")->option_text("FILE")->group("Report");
  app.add_option("--json", options.json, "Write one JSON object; - to stdout, in place of the table")->option_text("FILE")->group("Report");
  app.add_option("--save", options.save, "Write all values as tensors, for another --against")->option_text("FILE")->group("Report");
  app.add_option("--trace-dir", options.trace_dir,
                 "Where to write the bundle of what is found; off: none\n(default: reckoner/traces in the "
                 "cache folder)")
      ->option_text("DIR|off")
      ->group("Report");
  accept_range(app.add_option("--bundle-mb", options.bundle_mb, "Largest bundle, in MB (default: 256)")->group("Report"), 1, 65536);
}

Action add_trace(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  app.add_option("PROMPT", options->prompt, "What to run (default: a sentence about the sky)")->option_text(" ");
  app.add_flag("--raw", options->raw, "Use PROMPT as it is, without the chat template")->option_text(" ")->group("Prompt");
  app.add_option("--tokens", options->tokens, "Token ids in place of PROMPT: 5,17,3")->option_text("IDS")->group("Prompt");
  accept_range(app.add_option("--decode", options->decode, "Steps of the answer (default: 4)")->group("Prompt"), 0, 4096);
  accept_range(app.add_option("--chunk", options->chunk, "Prompt tokens a step (default: 64)")->group("Prompt"), 1, 65536);
  app.add_flag("--check", options->check, "Compare every call with its op's reference (slow)")->option_text(" ")->group("Comparison");
  app.add_flag("--no-exact", options->no_compare, "Do not run the steps in exact as well")->option_text(" ")->group("Comparison");
  app.add_option("--against", options->against, "A dump of another implementation, with its input_ids")
      ->option_text("FILE")
      ->group("Comparison");
  app.add_option("--tolerance", options->tolerance, "What a row may differ by, of its rms (default: derived\nfrom the precision)")
      ->option_text("X")
      ->group("Comparison")
      ->check(CLI::PositiveNumber);
  add_output_options(app, *options);
  add_machine_options(app, options->machine);
  add_device_options(app, options->machine);
  // Kernels are looked at as they are, and steps that are looked into are not recorded.
  for (const char* inert : {"--admission", "--cuda-graphs", "--accept"}) app.remove_option(app.get_option(inert));
  options->machine.admission = "off";
  app.add_option("--inject-nan", options->inject_nan)->group("");  // hidden: proves that it is found
  return [options](Console& console) { return trace_model(*options, console); };
}

}  // namespace

const Subcommand kTrace = {.name = "trace",
                           .summary = "Look into every op: ranges, precision, where a NaN is from",
                           .example = "reckoner trace models/pocket \"Define lantern.\" --html trace.html",
                           .add = add_trace};

}  // namespace reckoner
