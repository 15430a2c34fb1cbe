// reckoner verify: compares a model with what another implementation computed for it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/admit_kernels.h"
#include "cli/command_line.h"
#include "cli/memory.h"
#include "cli/options.h"
#include "cli/text_format.h"
#include "cli/verify_report.h"
#include "diagnose/verify/dequantised.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Runs the token ids of a reference file and compares hidden states after every layer, logits and\n"
    "greedy answers with what another implementation (transformers) computed for them. Exit status\n"
    "0 only if every case passes. tests/golden/README.md says what a reference file holds.\n"
    "With --dequantised the model is its own reference: its weights expanded to float, run by the plain\n"
    "scalar kernels on random tokens, must give the same logits.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner verify models/pocket --reference tests/data/pocket-golden.safetensors\n"
    "  reckoner verify models/pocket --reference tests/data/pocket-golden.safetensors --precision fast\n"
    "  reckoner verify tests/golden/glm_moe_dsa --reference tests/golden/glm_moe_dsa/reference.safetensors --chunk 1\n"
    "  reckoner verify models/pocket --dequantised";

struct VerifyOptions {
  std::string model;
  std::string reference;
  bool dequantised = false;
  std::int64_t seed = 1;
  std::vector<std::int64_t> chunks;
  bool json = false;
  MachineOptions machine = {.precision = "exact"};
};

// Room for the longest case with its answer, and logits for every row of a step.
StepLimits limits_for(const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks, KvCacheType cache_type) {
  constexpr std::int64_t kMaxStep = 2048;
  std::int64_t longest = 1;
  std::int64_t context = 1;
  for (const ReferenceCase& reference : cases) {
    const auto tokens = static_cast<std::int64_t>(reference.input_ids.size());
    longest = std::max(longest, tokens);
    context = std::max(context, tokens + static_cast<std::int64_t>(reference.generated.size()) + 1);
  }
  const std::int64_t asked = std::min(longest, *std::max_element(chunks.begin(), chunks.end()));
  const std::int64_t step = std::max(std::min(longest, kMaxStep), asked);
  return {.max_tokens = step, .max_samples = step, .max_context = context, .cache_type = cache_type};
}

// Without those that come to the same for a case this short.
std::vector<std::int64_t> chunks_for(const ReferenceCase& reference, std::vector<std::int64_t> chunks) {
  const auto is_whole = [&](std::int64_t chunk) { return chunk == 0 || chunk >= static_cast<std::int64_t>(reference.input_ids.size()); };
  const auto first = std::find_if(chunks.begin(), chunks.end(), is_whole);
  if (first != chunks.end()) chunks.erase(std::remove_if(first + 1, chunks.end(), is_whole), chunks.end());
  return chunks;
}

// The model's own weights in float, run by plain kernels.
Result<std::vector<ReferenceCase>> reference_from_itself(const VerifyOptions& options, const Session& session, Console& console) {
  const std::int64_t needed = dequantised_bytes(*session.model);
  const std::int64_t free = free_memory_bytes();
  if (free > 0 && needed > free) {
    return Error{fmt::format("--dequantised: the weights take {} in float, {} of memory are free", bytes_text(static_cast<double>(needed)),
                             bytes_text(static_cast<double>(free))),
                 "verify a smaller model in this format, or use --reference"};
  }
  console.note(
      fmt::format("expanding the weights to {} of floats, and running them with scalar kernels", bytes_text(static_cast<double>(needed))));
  const std::unique_ptr<Model> expanded = TRY(dequantised(*session.model, *session.pool));
  std::vector<std::int32_t> ids = random_tokens(expanded->config, static_cast<std::uint64_t>(options.seed));
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::int64_t step = std::min<std::int64_t>(tokens, 256);
  StepRunner runner(*expanded, cpu_catalogue(), limited_to(session.device, "scalar"), *session.pool, Precision::exact,
                    {.max_tokens = step, .max_samples = step, .max_context = tokens});
  return std::vector<ReferenceCase>{record_reference(runner, fmt::format("random tokens, seed {}", options.seed), std::move(ids))};
}

// Whether what was verified is what serves: with recorded steps, or why not.
std::string device_note(const Session& session, const StepRunner& runner) {
  std::string note =
      fmt::format("on {} ({}); {} steps recorded as CUDA graphs", session.device_names(), session.gpu.why, runner.recorded_steps());
  if (!runner.recording_failure().empty()) note += "; recording was given up: " + runner.recording_failure();
  return note;
}

// Tells near ties of the routers from errors where something rounds on the way: the same model in exact arithmetic, on the processor.
TieBreaker tie_breaker(const Session& session, StepLimits limits) {
  if (session.precision == Precision::exact && session.cache_type != KvCacheType::fp8) return {};
  limits.cache_type = KvCacheType::automatic;
  return {.make_exact =
              [&session, limits] {
                return std::make_unique<StepRunner>(*session.model, cpu_catalogue(), session.device, *session.pool, Precision::exact,
                                                    limits);
              },
          .host_weights = &session.model->weights};
}

Result<int> verify_model(const VerifyOptions& options, Console& console) {
  if (options.machine.cache_type == "bf16" && options.machine.precision == "exact") {
    return Error{"--kv-cache-dtype bf16: exact is held to bounds that only a float cache keeps",
                 "add --precision fast, whose cache is BF16 anyway, or leave the cache as it is"};
  }
  if (options.reference.empty() && !options.dequantised) {
    console.error({"--reference is required, or --dequantised", "see `reckoner verify --help`"});
    return kExitUsage;
  }
  Session session = TRY(open_session(options.model, options.machine, console));
  TRY(check_accepted(session, options.machine));
  std::vector<ReferenceCase> cases;
  if (!options.dequantised) cases = TRY(read_reference(options.reference, session.model->config));
  TRY(admit_kernels(session, options.machine, console));
  const double load_s = TRY(load_weights(session, console));
  console.note(fmt::format("{}: {} of weights in {}{}", session.name, bytes_text(static_cast<double>(session.model->weight_bytes)),
                           seconds_text(load_s), session.ranks_text()));
  if (options.dequantised) cases = TRY(reference_from_itself(options, session, console));
  const std::vector<std::int64_t> chunks = options.chunks.empty() ? std::vector<std::int64_t>{0, 37, 1} : options.chunks;
  const StepLimits limits = limits_for(cases, chunks, session.cache_type);
  const std::unique_ptr<StepModel> model = TRY(make_step_model(session, session.precision, limits, console));
  const TieBreaker ties = tie_breaker(session, limits);
  std::vector<VerifyCase> results;
  for (const ReferenceCase& reference : cases) {
    for (VerifyCase& result : verify(*model, {reference}, chunks_for(reference, chunks), ties)) results.push_back(std::move(result));
    if (!options.json) TRY(console.print(case_text(results.back())));
    TRY(model->status());
  }
  if (session.on_gpu()) console.note(device_note(session, *model->runner()));
  TRY(console.print(options.json ? verify_json(session, options.dequantised ? "dequantised" : options.reference, results)
                                 : verdict(results) + "\n"));
  const bool passed = std::all_of(results.begin(), results.end(), [](const VerifyCase& result) { return result.passed(); });
  return passed ? 0 : kExitFailed;
}

Action add_verify(CLI::App& app) {
  const auto options = std::make_shared<VerifyOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  CLI::Option* const reference =
      app.add_option("--reference", options->reference, "What the other implementation computed")->option_text("FILE")->group("Comparison");
  CLI::Option* const dequantised =
      app.add_flag("--dequantised", options->dequantised, "Compare with the model's own weights in float instead")
          ->option_text(" ")
          ->group("Comparison");
  dequantised->excludes(reference);
  accept_range(app.add_option("--seed", options->seed, "Of the random tokens of --dequantised (default: 1)")->group("Comparison"), 0,
               std::int64_t{1} << 62);
  app.get_option("--seed")->needs(dequantised);
  CLI::Option* const chunk = app.add_option("--chunk", options->chunks,
                                            "Tokens a step; 0: all at once; may be repeated\n(default: 0, 37 and 1, one after the other)");
  accept_range(chunk->allow_extra_args(false)->group("Comparison"), 0, 65536);
  app.add_flag("--json", options->json, "Print one JSON object")->group("Comparison");
  add_machine_options(app, options->machine);
  add_device_options(app, options->machine);
  return [options](Console& console) { return verify_model(*options, console); };
}

}  // namespace

const Subcommand kVerify = {.name = "verify",
                            .summary = "Compare a model with a recorded reference, layer by layer",
                            .example = "reckoner verify models/pocket --reference tests/data/pocket-golden.safetensors",
                            .add = add_verify};

}  // namespace reckoner
