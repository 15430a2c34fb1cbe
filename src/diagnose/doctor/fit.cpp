#include "diagnose/doctor/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "diagnose/doctor/counting_memory.h"
#include "model/share_of.h"
#include "model/upload.h"
#include "quant/format.h"

namespace reckoner::doctor {
namespace {

// Rows beside those of the requests whose logits a step may give: serve's.
constexpr std::int64_t kPromptLogprobRows = 64;
constexpr std::int64_t kServedSequences = 64;
// What a driver keeps for one kernel of a recorded step. Estimated.
constexpr std::int64_t kGraphNodeBytes = 1024;
constexpr std::int64_t kMostRanks = 64;

std::int64_t rounded_up(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens * kPageTokens; }

std::string_view part_name(WeightRole role) {
  switch (role) {
    case WeightRole::embedding:
      return "embedding";
    case WeightRole::head:
      return "output head";
    case WeightRole::attention:
      return "attention";
    case WeightRole::indexer:
    case WeightRole::index_weights:
      return "indexer";
    case WeightRole::mlp:
      return "dense MLPs";
    case WeightRole::expert:
      return "routed experts";
    case WeightRole::shared_expert:
      return "shared experts";
    case WeightRole::norm:
    case WeightRole::router:
      return "routers and norms";
  }
  return "";
}

struct Part {
  std::int64_t bytes = 0;
  std::set<std::string> formats;
};

// The rules name places in weights that could be written.
ModelWeights& named(const Model& model) { return const_cast<ModelWeights&>(model.weights); }

// Weights by what they are for, and whether each rank has all of them.
std::map<std::pair<std::string, bool>, Part> parts_of(const Model& share) {
  std::map<std::pair<std::string, bool>, Part> parts;
  for_each_rule(*share.family, share.config, [&](const WeightRule& rule) {
    const bool is_whole = rule.split == Split::whole;
    const std::string_view part_of = rule.role == WeightRole::attention && is_whole ? "latent projections" : part_name(rule.role);
    Part& part = parts[{std::string(part_of), is_whole}];
    for_each_place(rule, share.config, [&](WeightPlace place) {
      if (rule.matrix == nullptr) {
        part.bytes += rule.vector(named(share), place).bytes();
        return;
      }
      const Weight& matrix = rule.matrix(named(share), place);
      part.bytes += weight_bytes(matrix);
      part.formats.insert(std::string(info(matrix.format).name));
    });
  });
  return parts;
}

// Of as many ranks as check_split() allows.
std::unique_ptr<Model> first_share(const Model& model, int ranks) {
  Result<std::unique_ptr<Model>> share = share_of(model, {.index = 0, .count = ranks});
  CHECK(share.ok(), share.ok() ? "" : share.error().what);
  return std::move(share).value();
}

std::int64_t rows_bytes(const std::vector<CacheView>& views) {
  std::int64_t bytes = 0;
  for (const CacheView& view : views) bytes += view.row_elements == 0 ? 0 : view.row_bytes();
  return bytes;
}

}  // namespace

std::int64_t sequences_for(std::int64_t streams) { return std::max(kServedSequences, streams); }

std::int64_t step_tokens_for(std::int64_t chunk, std::int64_t sequences) { return std::max(chunk, sequences + 1); }

std::int64_t Fit::total() const {
  std::int64_t sum = 0;
  for (const Term& term : terms) sum += term.bytes;
  return sum;
}

// A runner for one context and number of streams, and what it would allocate.
struct Planner::Plan {
  std::unique_ptr<CountingMemory> memory;
  std::unique_ptr<StepRunner> runner;
  std::int64_t kernels = 0;  // of a step of one token
  std::int64_t bytes() const { return memory != nullptr ? memory->device_bytes() : runner->planned_bytes(); }
};

Planner::Planner(const Model& model, const PlannedDevice& device, const FitOptions& options, ThreadPool& pool)
    : model_(model), share_(first_share(model, options.ranks)), device_(device), options_(options), pool_(pool) {
  cache_bytes_per_token_ = kv_layout(share_->config, options.precision, options.cache_type).bytes_per_token();
}

Planner::~Planner() = default;

Planner::Plan Planner::plan(std::int64_t context, std::int64_t streams) const {
  const std::int64_t sequences = sequences_for(streams);
  const StepLimits limits{.max_tokens = step_tokens_for(options_.chunk, sequences),
                          .max_samples = sequences + kPromptLogprobRows,
                          .max_context = context,
                          .cache_type = options_.cache_type};
  Plan plan;
  if (device_.is_gpu()) plan.memory = std::make_unique<CountingMemory>(device_.info);
  plan.runner = std::make_unique<StepRunner>(*share_, share_->weights,
                                             Device{.info = device_.info, .catalogue = device_.catalogue, .memory = plan.memory.get()},
                                             pool_, options_.precision, limits);
  plan.kernels = static_cast<std::int64_t>(plan.runner->plan(1, context).size());
  return plan;
}

// Weights and the program: what no setting changes.
std::int64_t Planner::fixed_bytes() const {
  return (device_.is_gpu() ? upload_bytes(*share_) : share_->weight_bytes) + device_.program_bytes;
}

// Steps of each number of rows up to that of the streams are recorded.
std::int64_t Planner::graph_bytes(const Plan& planned, std::int64_t streams) const {
  if (!device_.is_gpu()) return 0;
  return std::min(sequences_for(streams), DeviceStep::kMaxRecordedRows) * planned.kernels * kGraphNodeBytes;
}

std::int64_t Planner::bytes_at(std::int64_t context, std::int64_t streams) const {
  const Plan planned = plan(context, streams);
  return fixed_bytes() + planned.bytes() + graph_bytes(planned, streams) + rounded_up(context) * streams * cache_bytes_per_token_;
}

std::int64_t Planner::longest_context(std::int64_t streams) const {
  const std::int64_t longest = model_.config.max_position_embeddings;
  if (device_.memory_bytes == 0) return longest;
  // Everything that grows with the context grows in proportion: two points say how.
  const std::int64_t low = std::min<std::int64_t>(kPageTokens, longest);
  const std::int64_t at_low = bytes_at(low, streams);
  const std::int64_t at_high = bytes_at(longest, streams);
  if (at_high <= device_.memory_bytes) return longest;
  if (at_low > device_.memory_bytes) return 0;
  const double share = static_cast<double>(device_.memory_bytes - at_low) / static_cast<double>(at_high - at_low);
  auto tokens = low + static_cast<std::int64_t>(share * static_cast<double>(longest - low));
  tokens = tokens / kPageTokens * kPageTokens;
  while (tokens > kPageTokens && bytes_at(tokens, streams) > device_.memory_bytes) tokens = tokens * 63 / 64 / kPageTokens * kPageTokens;
  return std::max(tokens, low);
}

std::int64_t Planner::most_streams(std::int64_t context) const {
  constexpr std::int64_t kMost = 1024;  // more are never asked for
  if (device_.memory_bytes == 0) return kMost;
  const std::int64_t one = bytes_at(context, 1);
  if (one > device_.memory_bytes) return 0;
  const std::int64_t cache = std::max<std::int64_t>(1, rounded_up(context) * cache_bytes_per_token_);
  std::int64_t streams = std::min(kMost, 1 + (device_.memory_bytes - one) / cache);
  // More than serve runs at a time anyway need more room for their logits too.
  while (streams > kServedSequences && bytes_at(context, streams) > device_.memory_bytes) --streams;
  return streams;
}

void Planner::add_terms(Fit& fit) const {
  std::int64_t weights = 0;
  for (const auto& [which, part] : parts_of(*share_)) {
    const std::string placed = options_.ranks == 1 ? "" : which.second ? "whole" : fmt::format("1/{}", options_.ranks);
    std::string note;
    for (const std::string& format : part.formats) note += (note.empty() ? "" : ", ") + format;
    if (!placed.empty()) note += (note.empty() ? "" : "; ") + placed;
    fit.terms.push_back({"weights: " + which.first, part.bytes, note});
    weights += part.bytes;
  }
  std::stable_sort(fit.terms.begin(), fit.terms.end(), [](const Term& a, const Term& b) { return a.bytes > b.bytes; });
  const std::int64_t placed = fixed_bytes() - device_.program_bytes;
  // Where each matrix starts is rounded; converted scales are counted once.
  if (placed != weights) fit.terms.push_back({"weights: alignment", placed - weights, ""});

  const KvLayout layout = kv_layout(share_->config, options_.precision, options_.cache_type);
  const std::string type(cache_name(options_.precision, options_.cache_type));
  std::int64_t per_token = 0;
  const auto add_cache = [&](std::string_view name, const std::vector<CacheView>& views) {
    const std::int64_t bytes = rows_bytes(views);
    if (bytes == 0) return;
    per_token += bytes;
    fit.terms.push_back({fmt::format("cache: {}", name), bytes * fit.cache_tokens, fmt::format("{}, {} B a token", type, bytes)});
  };
  add_cache("latent", layout.latent);
  add_cache("index keys", layout.index_keys);
  add_cache("keys", layout.keys);
  add_cache("values", layout.values);
  const std::int64_t padding = layout.bytes_per_token() - per_token;
  if (padding > 0) fit.terms.push_back({"cache: alignment", padding * fit.cache_tokens, ""});

  StepRunner& runner = *chosen_->runner;
  const std::int64_t workspace = runner.ops().workspace_bytes();
  fit.terms.push_back({"activations", runner.planned_bytes() - workspace, fmt::format("steps of {} tokens", runner.limits().max_tokens)});
  fit.terms.push_back({"kernel workspace", workspace, ""});
  if (device_.is_gpu()) {
    fit.terms.push_back({"step buffers", chosen_->bytes() - runner.planned_bytes(), ""});
    const std::int64_t graphs = std::min(fit.sequences, DeviceStep::kMaxRecordedRows);
    fit.terms.push_back(
        {"CUDA graphs", graph_bytes(*chosen_, fit.streams), fmt::format("{} sizes of {} kernels, estimated", graphs, chosen_->kernels)});
  }
  fit.terms.push_back({device_.is_gpu() ? "driver and reserve" : "program", device_.program_bytes,
                       device_.is_gpu() ? "estimated" : "code, tokenizer, names, threads"});
}

void Planner::advise(Fit& fit) const {
  if (fit.longest_context > 0) {
    fit.advice.push_back(
        fmt::format("--context {}: the longest that fits for {} stream{}", fit.longest_context, fit.streams, fit.streams == 1 ? "" : "s"));
  }
  const auto would_fit = [&](const FitOptions& options) {
    const Planner other(model_, device_, options, pool_);
    return other.bytes_at(fit.context, options.streams) <= device_.memory_bytes;
  };
  if (options_.cache_type != KvCacheType::fp8) {
    FitOptions fp8 = options_;
    fp8.cache_type = KvCacheType::fp8;
    if (would_fit(fp8)) fit.advice.emplace_back("--kv-cache-dtype fp8: the cache is about half as large");
  }
  if (fit.streams > 1) {
    const std::int64_t fewer = most_streams(fit.context);
    if (fewer > 0) fit.advice.push_back(fmt::format("--streams {}: as many as fit at this context", fewer));
  }
  if (!device_.is_gpu()) return;
  for (int ranks = options_.ranks + 1; ranks <= kMostRanks; ++ranks) {
    FitOptions more = options_;
    more.ranks = ranks;
    if (!check_split(model_, ranks).ok() || !would_fit(more)) continue;
    fit.advice.push_back(fmt::format("--tp {}: that many such GPUs hold it", ranks));
    break;
  }
}

Fit Planner::fit() {
  const std::int64_t longest = model_.config.max_position_embeddings;
  Fit fit{.streams = options_.streams, .sequences = sequences_for(options_.streams), .available_bytes = device_.memory_bytes};
  fit.longest_context = longest_context(options_.streams);
  constexpr std::int64_t kLeast = 4096;  // to show the terms of, where nothing fits
  fit.context = options_.context > 0      ? std::min(options_.context, longest)
                : fit.longest_context > 0 ? fit.longest_context
                                          : std::min(kLeast, longest);
  fit.cache_tokens = rounded_up(fit.context) * fit.streams;
  chosen_ = std::make_unique<Plan>(plan(fit.context, fit.streams));
  if (!status().ok()) return fit;
  add_terms(fit);
  fit.fits = device_.memory_bytes == 0 || fit.total() <= device_.memory_bytes;
  for (const std::int64_t context : {std::int64_t{8192}, std::int64_t{32768}, std::int64_t{131072}, longest}) {
    if (context <= longest && (fit.capacities.empty() || context > fit.capacities.back().context))
      fit.capacities.push_back({context, most_streams(context)});
  }
  if (!fit.fits) advise(fit);
  return fit;
}

std::vector<Ops::Call> Planner::step(std::int64_t tokens, std::int64_t context) {
  CHECK(chosen_ != nullptr, "fit() comes first");
  if (!status().ok()) return {};
  const StepLimits& limits = chosen_->runner->limits();
  return chosen_->runner->plan(std::min(tokens, limits.max_tokens), std::min(context, limits.max_context));
}

Status Planner::status() const { return chosen_ == nullptr ? Status() : chosen_->runner->status(); }

}  // namespace reckoner::doctor
