#include "diagnose/doctor/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "diagnose/lint/lint.h"
#include "diagnose/served/served.h"
#include "model/share_of.h"
#include "quant/format.h"

namespace reckoner::doctor {
namespace {

// What a GPU's driver keeps for a process (context, code of kernels), and a communicator's buffers.
constexpr std::int64_t kGpuReserveBytes = 600'000'000;
constexpr std::int64_t kRanksReserveBytes = 400'000'000;

std::string format_name(QuantFormat format) {
  std::string text = findings::lower_ascii(info(format).name);
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

// The rules name places in weights that could be written.
ModelWeights& named(const Model& model) { return const_cast<ModelWeights&>(model.weights); }

std::set<QuantFormat> formats_of(const Model& model) {
  std::set<QuantFormat> formats;
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model.config, [&](WeightPlace place) { formats.insert(rule.matrix(named(model), place).format); });
  });
  return formats;
}

ModelFacts facts_of(const Model& model) {
  const ModelConfig& config = model.config;
  const bool sparse = std::find(config.mlp_kinds.begin(), config.mlp_kinds.end(), MlpKind::sparse) != config.mlp_kinds.end();
  ModelFacts facts{.type = config.model_type,
                   .layers = config.num_hidden_layers,
                   .experts = sparse ? config.n_routed_experts : 0,
                   .longest = config.max_position_embeddings,
                   .weight_bytes = model.weight_bytes};
  for (const QuantFormat format : formats_of(model)) facts.formats.push_back(format_name(format));
  return facts;
}

// What a process on the processor takes beside weights, cache and workspace.
std::int64_t program_bytes(const Model& model, const std::filesystem::path& folder) {
  // Measured: code and libraries, threads, HTTP, an idle engine.
  constexpr std::int64_t kProgram = 25'500'000;
  // A tensor's name, shape and place, its JSON while it is read, and its entry in the weights.
  constexpr std::int64_t kTensor = 700;
  // A tokenizer's tables and its text, in terms of its file.
  constexpr std::int64_t kTokenizer = 8;
  std::error_code failure;
  std::int64_t bytes = kProgram;
  if (model.checkpoint) bytes += kTensor * static_cast<std::int64_t>(model.checkpoint->tensors().size());
  for (const char* file : {"tokenizer.json", "tiktoken.model"}) {
    const std::uintmax_t size = std::filesystem::file_size(folder / file, failure);
    if (!failure) return bytes + kTokenizer * static_cast<std::int64_t>(size);
  }
  return bytes;
}

PlannedDevice planned_device(const Hardware& hardware, const Model& model, const Options& options, int ranks) {
  PlannedDevice device{.info = hardware.device, .memory_bytes = hardware.memory_bytes};
  // Without its kernels the ops' references stand for them: they need no workspace.
  device.catalogue = hardware.catalogue ? *hardware.catalogue : with_references({});
  device.program_bytes = device.is_gpu() ? kGpuReserveBytes + (ranks > 1 ? kRanksReserveBytes : 0) : program_bytes(model, options.folder);
  return device;
}

// As asked, or the most GPUs that can divide the model.
Result<int> choose_ranks(const Model& model, const Hardware& hardware, int asked) {
  if (asked > 0) {
    TRY(check_split(model, asked));
    if (hardware.gpus == 0 && asked > 1) return Error{fmt::format("--tp {}: there is no GPU here", asked), "describe some with --hardware"};
    if (asked > std::max(1, hardware.gpus))
      return Error{fmt::format("--tp {}: there are {} GPUs", asked, hardware.gpus),
                   fmt::format("describe more: --hardware \"{}x ...\"", asked)};
    return asked;
  }
  for (int ranks = hardware.gpus; ranks > 1; --ranks) {
    if (check_split(model, ranks).ok()) return ranks;
  }
  return 1;
}

// Ops of these calls, each with what serves it.
std::vector<KernelUse> kernels_of(const std::vector<Ops::Call>& calls, const Hardware& hardware, const Model& model) {
  std::vector<KernelUse> uses;
  if (!hardware.catalogue) return uses;
  const std::vector<Served> all = all_served(*hardware.catalogue, hardware.device, {}, formats_of(model));
  for (const Ops::Call& call : calls) {
    for (const Served& served : all) {
      const bool is_it = served.op == call.op && std::any_of(served.items.begin(), served.items.end(), [&](const admission::Item& item) {
                           return item.key.index() == call.key.index();
                         });
      if (!is_it) continue;
      KernelUse use{.op = served.op,
                    .format = served.formats.empty() ? "" : format_name(call.key.format),
                    .kernel = std::string(call.kernel),
                    .refused = served.refused};
      // What says nothing of the machine: kernels of other formats or another precision were never meant for this.
      std::erase_if(use.refused, [](const std::string& why) {
        return why.ends_with(": is for another weight format") || why.ends_with("precision exact keeps them float");
      });
      const bool known = std::any_of(uses.begin(), uses.end(), [&](const KernelUse& other) {
        return other.op == use.op && other.format == use.format && other.kernel == use.kernel;
      });
      if (!known) uses.push_back(std::move(use));
      break;
    }
  }
  return uses;
}

// What the processor's kernels multiply with all threads: a BF16 matrix by the rows of a step that reads a prompt. In 1e12 a second.
double measure_tflops(const Hardware& hardware, Precision precision, ThreadPool& pool) {
  constexpr std::int64_t kSize = 1024;
  constexpr std::int64_t kRows = 256;
  const auto zeros = [](std::int64_t bytes) {
    Buffer buffer(bytes);
    std::memset(buffer.data(), 0, static_cast<std::size_t>(bytes));
    return buffer;
  };
  const Buffer weight = zeros(kSize * kSize * 2);
  const Buffer x = zeros(kRows * kSize * 4);
  const Buffer y = zeros(kRows * kSize * 4);
  const LinearArgs args{.x = x.tensor(DType::f32, {kRows, kSize}),
                        .w = {.format = QuantFormat::bf16, .rows = kSize, .cols = kSize, .data = weight.data()},
                        .y = y.tensor(DType::f32, {kRows, kSize}),
                        .precision = precision};
  Ops ops(*hardware.catalogue, hardware.device, pool);
  ops.begin_plan();
  ops(args);
  static_cast<void>(ops.end_plan());
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  double best = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < 0.1) {
    const Clock::time_point begun = Clock::now();
    ops(args);
    best = std::max(best, 2.0 * kRows * kSize * kSize / seconds_since(begun));
  }
  return best / 1e12;
}

void predict_speed(Planner& planner, const Model& model, const Options& options, ThreadPool& pool, Report& report) {
  const Fit& fit = *report.fit;
  const Hardware& hardware = report.hardware;
  if (hardware.gpus > 0) {
    if (!hardware.peaks || hardware.device.cuda.memory_gbs <= 0) return;
    report.speed_basis = basis_for_gpu(hardware.device.cuda.memory_gbs, *hardware.peaks);
  } else {
    report.speed_basis = basis_for_processor(measure_memory_gbs(pool), measure_tflops(hardware, options.fit.precision, pool));
  }
  SpeedBasis& basis = *report.speed_basis;
  basis.ranks = report.ranks;
  basis.hidden = model.config.hidden_size;
  basis.layers = model.config.num_hidden_layers;
  const std::int64_t context = std::min<std::int64_t>(fit.context, 8192);
  for (const std::int64_t streams : {1, 4, 16, 64}) {
    const bool room = std::any_of(fit.capacities.begin(), fit.capacities.end(),
                                  [&](const Capacity& one) { return one.context >= context && one.streams >= streams; });
    if (streams > 1 && !room && !fit.capacities.empty() && fit.capacities.front().streams < streams) continue;
    const StepTime time = step_time(planner.step(streams, context), streams, basis);
    if (time.seconds > 0) report.decode.push_back({streams, context, static_cast<double>(streams) / time.seconds});
  }
  if (fit.context > context) {
    const StepTime time = step_time(planner.step(1, fit.context), 1, basis);
    if (time.seconds > 0) report.decode.push_back({1, fit.context, 1 / time.seconds});
  }
  if (basis.tflops <= 0) return;
  const std::int64_t tokens = std::min(step_tokens_for(options.fit.chunk, fit.sequences), fit.context);
  // Behind a short prompt, in the middle of the longest at most, and behind a long one.
  const std::int64_t first = std::min<std::int64_t>(8192, (fit.context - tokens) / 2 / 1024 * 1024);
  for (const std::int64_t before : {first, std::int64_t{65536}}) {
    if (before + tokens > fit.context) break;
    const StepTime time = step_time(planner.step(tokens, before + tokens), tokens, basis);
    if (time.seconds > 0) report.prefill.push_back({before, static_cast<double>(tokens) / time.seconds});
  }
}

findings::Facts facts_for(const Report& report, const Options& options, const Model* model) {
  const Hardware& hardware = report.hardware;
  findings::Facts facts;
  if (hardware.gpus > 0) {
    facts.hardware = {fmt::format("{}.{}", hardware.device.cuda.major, hardware.device.cuda.minor)};
    if (hardware.profile != nullptr) facts.hardware.emplace_back(hardware.profile->name);
  } else {
    facts.hardware = {"cpu"};
  }
  const auto add = [&](bool holds, std::string_view trait) {
    if (holds) facts.traits.emplace_back(trait);
  };
  const bool is_described = hardware.is_described;
  add(hardware.gpus > 1, "several-gpus");
  add(hardware.gpus > 1 && hardware.peaks && hardware.peaks->link == Link::pcie, "pcie");
  add(hardware.peaks && hardware.peaks->is_unified, "unified-memory");
  add(!is_described && report.host.iommu == Known::yes && !report.host.iommu_passthrough, "iommu");
  add(options.fit.cache_type == KvCacheType::fp8, "fp8-cache");
  if (report.model) {
    facts.model = report.model->type;
    facts.formats = report.model->formats;
  }
  add(model != nullptr && model->config.is_sparse_attention(), "sparse-attention");
  if (report.lint) {
    facts.lint.emplace();
    for (const lint::FindingGroup* group : report.lint->groups()) facts.lint->emplace_back(group->kind->id);
  }
  return facts;
}

void match_findings(Report& report, const Options& options, const Model* model) {
  for (findings::FactMatch& match : findings::match_facts(report.known, facts_for(report, options, model))) {
    // What lies in the checkpoint or the machine itself, whatever serves; all else are failures of some server.
    const findings::Applies& applies = match.finding->applies;
    const bool here = match.in_checkpoint || (applies.engines.empty() && !applies.traits.empty());
    (here ? report.matches : report.elsewhere).push_back(std::move(match));
  }
}

std::string gigabytes(std::int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9); }

void judge_lint(Report& report, const Options& options) {
  for (const lint::FindingGroup* group : report.lint->groups()) {
    const std::string text = fmt::format("checkpoint: {}: {}", group->kind->id, group->kind->title);
    const bool is_accepted = std::find(options.accept.begin(), options.accept.end(), group->kind->id) != options.accept.end();
    const bool is_error = group->kind->severity == lint::Severity::error;
    if (is_error && !is_accepted) report.problems.push_back(text);
    if (group->kind->severity == lint::Severity::warning || (is_error && is_accepted)) report.doubts.push_back(text);
  }
}

void judge_fit(Report& report) {
  const Fit& fit = *report.fit;
  if (!fit.fits) {
    report.problems.push_back(fmt::format("memory: {} needed{}, {} there, for {} stream{} of {} tokens", gigabytes(fit.total()),
                                          report.ranks > 1 ? " on each GPU" : "", gigabytes(fit.available_bytes), fit.streams,
                                          fit.streams == 1 ? "" : "s", fit.context));
  } else if (fit.available_bytes > 0 && fit.total() > fit.available_bytes / 100 * 97) {
    report.doubts.push_back("memory: less than 3 % is left over: the driver or a neighbour may need it");
  }
  if (fit.available_bytes == 0) report.doubts.emplace_back("memory: how much is free is not known");
}

void judge_kernels(Report& report) {
  std::set<std::string> plain;
  for (const KernelUse& use : report.kernels) {
    if (use.kernel.ends_with(".reference")) plain.insert(use.op);
  }
  if (!plain.empty()) report.doubts.push_back(fmt::format("kernels: only the plain reference serves {}", fmt::join(plain, ", ")));
  if (!report.hardware.catalogue) report.doubts.push_back("kernels: not known: " + report.hardware.no_kernels);
}

void judge_host(Report& report) {
  const HostFacts& host = report.host;
  if (report.hardware.is_described) return;
  if (report.hardware.gpus > 1 && host.acs == Known::yes)
    report.doubts.emplace_back("machine: ACS redirects traffic between GPUs: all-reduce can be slow or hang (acs-redirect-deadlock)");
  if (report.hardware.gpus > 1 && host.iommu == Known::yes && !host.iommu_passthrough)
    report.doubts.emplace_back("machine: the IOMMU translates: traffic between GPUs can be slow or hang (iommu=pt passes it through)");
  if (host.open_files > 0 && host.open_files < 1024)
    report.doubts.push_back(fmt::format("machine: only {} open files are allowed (ulimit -n)", host.open_files));
  if (report.disk && report.disk->read_gbs && report.model) {
    const double minutes = static_cast<double>(report.model->weight_bytes) / (*report.disk->read_gbs * 1e9) / 60;
    if (minutes > 10) report.doubts.push_back(fmt::format("disk: reading the weights takes about {:.0f} minutes", minutes));
  }
}

void judge(Report& report, const Options& options) {
  if (report.lint) judge_lint(report, options);
  if (report.fit) {
    judge_fit(report);
    judge_kernels(report);
  }
  judge_host(report);
  report.verdict = !report.problems.empty() ? Verdict::impossible : !report.doubts.empty() ? Verdict::doubtful : Verdict::ready;
}

// Everything about the model that needs it opened. Problems become part of the report.
void examine_model(const Model& model, const Options& options, Report& report) {
  report.model = facts_of(model);
  if (options.fit.context > report.model->longest) {
    report.problems.push_back(fmt::format("--context {}: the model was made for at most {} tokens (max_position_embeddings)",
                                          options.fit.context, report.model->longest));
  }
  const Result<int> ranks = choose_ranks(model, report.hardware, options.ranks);
  if (!ranks) {
    report.problems.push_back(ranks.error().what + "; " + ranks.error().remedy);
    return;
  }
  report.ranks = *ranks;
  ThreadPool pool(report.host.cores);  // as many as serve would have: kernels need workspace for each
  FitOptions fit = options.fit;
  fit.ranks = report.ranks;
  Planner planner(model, planned_device(report.hardware, model, options, report.ranks), fit, pool);
  Fit found = planner.fit();
  if (!planner.status().ok()) {
    report.problems.push_back(planner.status().error().what);
    return;
  }
  report.fit = std::move(found);
  std::vector<Ops::Call> calls = planner.step(1, report.fit->context);
  const std::vector<Ops::Call> many = planner.step(512, report.fit->context);
  calls.insert(calls.end(), many.begin(), many.end());
  report.kernels = kernels_of(calls, report.hardware, model);
  if (report.fit->fits) predict_speed(planner, model, options, pool, report);
}

}  // namespace

std::string_view name(Verdict verdict) {
  return verdict == Verdict::ready ? "ready" : verdict == Verdict::doubtful ? "doubtful" : "impossible";
}

Result<Report> examine(Hardware hardware, const Options& options, ThreadPool& pool) {
  Report report{.hardware = std::move(hardware), .host = read_host("/")};
  report.known = TRY(findings::load_findings(options.findings_folder));
  std::unique_ptr<Model> model;
  if (!options.model.empty()) {
    report.disk = measure_disk(options.folder);
    Result<lint::LintReport> lint = lint::lint_folder(options.folder, {.depth = lint::LintDepth::load}, pool);
    if (lint) report.lint = std::move(lint).value();
    Result<std::unique_ptr<Model>> opened = open_model(options.folder);
    if (opened) {
      model = std::move(opened).value();
      examine_model(*model, options, report);
    } else {
      report.problems.push_back(opened.error().what);
    }
  }
  match_findings(report, options, model.get());
  judge(report, options);
  return report;
}

}  // namespace reckoner::doctor
