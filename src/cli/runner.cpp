#include "cli/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <random>

#include "cli/admit_kernels.h"
#include "cli/answer_report.h"
#include "cli/bad_step.h"
#include "cli/chat.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

// What one process of `run` needs for all its answers.
struct Run {
  const RunOptions& options;
  Console& console;
  Session session;
  Tokenizer tokenizer;
  TemplateInputs inputs;
  EffectiveSampling sampling;
  InjectedFault fault = {};
  std::int64_t context = 0;
  double load_s = 0;
  std::unique_ptr<Engine> engine = nullptr;
  std::unique_ptr<Speedometer> speedometer = nullptr;
};

Result<EngineLimits> choose_limits(Run& run) {
  const Model& model = *run.session.model;
  const ContextChoice context = TRY(choose_context(run.options.limits.context, {.longest = model.config.max_position_embeddings,
                                                                                .bytes_per_token = run.session.cache_bytes_per_token(),
                                                                                .weight_bytes = run.session.weight_bytes(),
                                                                                .free_bytes = run.session.free_bytes()}));
  run.context = context.tokens;
  run.session.settings.push_back({"context", fmt::format("{} tokens", context.tokens), "", context.why});
  run.session.settings.push_back({"prompt chunk", fmt::format("{} tokens", run.options.limits.chunk), "", ""});
  return EngineLimits{.max_context = context.tokens,
                      .cache_tokens = context.tokens,
                      .max_sequences = 1,
                      .max_step_tokens = std::max<std::int64_t>(2, std::min(run.options.limits.chunk, context.tokens)),
                      .cache_type = run.session.cache_type};
}

void print_settings(const Run& run) {
  const Model& model = *run.session.model;
  std::string text = "settings\n" + settings_table(run.session.settings) + "sampling\n" + settings_table(run.sampling.settings) +
                     "model\n" + settings_table(joined(model.config.settings, model.quant.settings));
  if (!model.config.ignored.empty()) text += "ignored\n" + settings_table(without_sources(model.config.ignored));
  for (const std::string& note : model.notes) text += fmt::format("note: {}\n", note);
  run.console.plain(text);
}

// Everything that can be wrong with the command line is found before the weights are read.
Result<std::unique_ptr<Run>> prepare(const RunOptions& options, Console& console) {
  Session session = TRY(open_session(options.model, options.machine, console));
  TRY(check_accepted(session, options.machine));
  Tokenizer tokenizer = TRY(Tokenizer::load(session.folder));
  TemplateInputs inputs = TRY(read_template_inputs(options.chat_template));
  const ModelConfig& config = session.model->config;
  EffectiveSampling sampling = TRY(effective_sampling(options.sampling, config.generation, config.vocab_size, std::random_device{}()));
  auto run = std::make_unique<Run>(Run{.options = options,
                                       .console = console,
                                       .session = std::move(session),
                                       .tokenizer = std::move(tokenizer),
                                       .inputs = std::move(inputs),
                                       .sampling = std::move(sampling)});
  if (!options.inject_nan.empty()) run->fault = TRY(parse_fault(options.inject_nan, run->session.model->config.num_hidden_layers));
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return Error{"--stop: expected a text, found an empty one", "leave it out"};
  }
  return run;
}

Status start_engine(Run& run) {
  const auto start = std::chrono::steady_clock::now();
  const EngineLimits limits = TRY(choose_limits(run));
  TRY(admit_kernels(run.session, run.options.machine, run.console));
  if (run.options.verbose) print_settings(run);
  run.load_s = TRY(load_weights(run.session, run.console));
  const Session& session = run.session;
  std::unique_ptr<StepModel> model = TRY(make_step_model(session, session.precision, step_limits(limits), run.console));
  run.engine = std::make_unique<Engine>(std::move(model), limits);
  TRY(run.engine->status());
  trace_bad_steps(*run.engine, session, run.options.trace_dir, run.console);
  run.speedometer = std::make_unique<Speedometer>(*run.engine, *session.pool);
  run.load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.console.note(fmt::format(
      "{}: {} of weights in {}{}; {} kernels, {}, {}, context {}", session.name,
      bytes_text(static_cast<double>(session.model->weight_bytes)), seconds_text(run.load_s), session.ranks_text(), session.kernels,
      session.precision_name, session.pool->threads() == 1 ? "1 thread" : fmt::format("{} threads", session.pool->threads()), run.context));
  return {};
}

// Calls are shown as the model writes them: there is nobody to call.
OutputParserOptions output_options(const Run& run, const std::string& prompt) {
  if (run.options.raw) return {};
  return {.format = output_format_for(run.session.model->config.model_type, run.tokenizer.chat_template()),
          .start = output_start_after(prompt)};
}

Result<AnswerRequest> make_request(const Run& run, const std::string& prompt) {
  const RunOptions& options = run.options;
  const std::vector<TokenId> ids = TRY(run.tokenizer.encode(prompt));
  AnswerRequest request{.request = {.prompt = {ids.begin(), ids.end()}, .sampling = run.sampling.params, .max_tokens = options.max_tokens},
                        .stop_strings = options.stop,
                        .special_tokens = options.show_special ? SpecialTokens::keep : SpecialTokens::skip,
                        .output = output_options(run, prompt),
                        .fault = run.fault};
  for (const std::int64_t id : run.session.model->config.eos_token_ids)
    request.request.stop_tokens.push_back(static_cast<std::int32_t>(id));
  return request;
}

// Shows an answer as it comes: what is thought on stderr, for those who watch; what is answered on stdout.
class Screen {
 public:
  Screen(Console& console, bool silent) : console_(console), silent_(silent) {}

  Status show(const OutputDelta& part) {
    if (silent_) return {};
    if (!part.reasoning.empty() && console_.stderr_is_terminal()) {
      // Without colours something else must tell the two apart.
      if (!reasoning_ && !console_.has_colour()) console_.dimmed("(thinking) ");
      reasoning_ = true;
      console_.dimmed(part.reasoning);
    }
    if (part.content.empty()) return {};
    if (reasoning_) console_.dimmed("\n\n");
    reasoning_ = false;
    return console_.print(part.content);
  }

 private:
  Console& console_;
  bool silent_;
  bool reasoning_ = false;  // the last thing shown
};

Result<Answer> answer_prompt(Run& run, const std::string& prompt) {
  AnswerRequest request = TRY(make_request(run, prompt));
  const auto prompt_tokens = static_cast<std::int64_t>(request.request.prompt.size());
  Screen screen(run.console, run.options.json);
  const InterruptGuard interrupt;
  const AnswerSink sink{.text = [&](const OutputDelta& part) { return screen.show(part); },
                        .interrupted = [&] { return interrupt.interrupted(); }};
  const Answer answer = TRY(generate(*run.engine, run.tokenizer, std::move(request), sink));
  const Speed speed = run.speedometer->measure(prompt_tokens, answer);
  const RunFacts facts{.load_s = run.load_s, .context = run.context, .prompt_tokens = prompt_tokens};
  TRY(run.console.print(run.options.json ? answer_json(run.session, *run.engine, facts, answer, speed, run.sampling) : "\n"));
  run.console.note(closing_line(prompt_tokens, answer, speed, run.sampling));
  return answer;
}

Conversation opening(const RunOptions& options) {
  Conversation conversation;
  if (!options.system.empty()) conversation.add("system", options.system);
  return conversation;
}

// PROMPT, or stdin where it says so.
Result<std::string> prompt_text(const RunOptions& options, const Console& console) {
  std::string text;
  if (options.prompt && *options.prompt != "-") {
    text = *options.prompt;
  } else if (options.prompt || !console.stdin_is_terminal()) {
    text = TRY(read_stdin());
  } else {
    return Error{fmt::format("{} needs a prompt", options.json ? "--json" : "--raw"), "give PROMPT, or - to read it from stdin"};
  }
  if (text.empty()) return Error{"the prompt is empty", "give PROMPT, or text on stdin"};
  if (valid_utf8(text) != text) return Error{"the prompt is not UTF-8", "convert it, for example with iconv -t UTF-8"};
  return text;
}

Result<int> answer_once(Run& run) {
  std::string prompt = TRY(prompt_text(run.options, run.console));
  if (!run.options.raw) {
    Conversation conversation = opening(run.options);
    conversation.add("user", prompt);
    prompt = TRY(render(run.tokenizer, conversation.json(), run.inputs));
    TRY(report_inert_no_think(run.tokenizer, conversation.json(), run.options.chat_template, run.console));
  }
  TRY(start_engine(run));
  const Answer answer = TRY(answer_prompt(run, prompt));
  return answer.finish_reason == "interrupted" ? kExitInterrupted : 0;
}

Result<int> chat_on_terminal(Run& run) {
  TRY(start_engine(run));
  return chat(run.console, opening(run.options), [&](Conversation& conversation) -> Status {
    const std::string prompt = TRY(render(run.tokenizer, conversation.json(), run.inputs));
    const Answer answer = TRY(answer_prompt(run, prompt));
    conversation.add_answer(answer.text, answer.reasoning);
    return {};
  });
}

}  // namespace

Result<int> run(const RunOptions& options, Console& console) {
  if (options.quiet) console.be_quiet();
  const std::unique_ptr<Run> run = TRY(prepare(options, console));
  const bool chats = !options.prompt && !options.raw && !options.json && console.stdin_is_terminal();
  return chats ? chat_on_terminal(*run) : answer_once(*run);
}

}  // namespace reckoner
