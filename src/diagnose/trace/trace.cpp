#include "diagnose/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/trace/selection.h"
#include "engine/batch_builder.h"
#include "engine/kv_pool.h"

namespace reckoner::trace {
namespace {

// One precision's run of the sequence: a runner, its cache, and the batch of the step, which stays for a second look.
class TracedRun {
 public:
  TracedRun(const TraceSubject& subject, Precision precision, KvCacheType cache_type, std::int64_t chunk, std::int64_t context)
      : runner(subject.model, subject.weights, subject.device, subject.pool, precision,
               {.max_tokens = chunk, .max_samples = chunk, .max_context = context, .cache_type = cache_type}),
        cache_(runner.cache_layout(), KvPool::pages_for(context), runner.memory()) {
    if (std::optional<std::vector<std::int32_t>> pages = cache_.allocate(cache_.pages())) pages_ = *std::move(pages);
    runner.use_cache(cache_.layout());
  }

  // All rows are sampled, so that every position's logits can be compared.
  const Batch& stage(std::span<const std::int32_t> tokens, std::int64_t first) {
    builder_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) builder_.add(tokens[i], first + static_cast<std::int64_t>(i), pages_, Sample::yes);
    batch_ = builder_.batch();
    return batch_;
  }

  StepRunner runner;

 private:
  KvPool cache_;
  std::vector<std::int32_t> pages_;
  BatchBuilder builder_;
  Batch batch_;
};

// What is kept of a call of the exact run until the same call of the other one.
struct ExactCall {
  CallName name;
  std::vector<float> output;
  std::vector<std::int32_t> slots;  // of experts: begins, then tokens
};

// A visitor: the first output of floats, and the experts' slots.
class MainOutput {
 public:
  explicit MainOutput(HostReader& reader) : reader_(reader) {}
  std::string name;
  std::vector<float> values;
  std::vector<std::int32_t> slots;

  void in(const char* argument, const Tensor& tensor) {
    if (std::string_view(argument).starts_with("slots.")) keep_slots(tensor);
  }
  void out(const char* argument, const Tensor& tensor) {
    if (std::string_view(argument).starts_with("slots.")) return keep_slots(tensor);
    if (!name.empty() || tensor.empty() || tensor.dtype != DType::f32) return;
    name = argument;
    const Tensor here = reader_.here(tensor);
    values.assign(here.f32(), here.f32() + here.shape.elements());
  }
  void inout(const char* argument, const Tensor& tensor) { out(argument, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}

 private:
  void keep_slots(const Tensor& tensor) {
    const Tensor here = reader_.here(tensor);
    slots.insert(slots.end(), here.i32(), here.i32() + here.shape.elements());
  }
  HostReader& reader_;
};

MainOutput main_output(const OpRun& run, HostReader& reader) {
  MainOutput output(reader);
  std::visit([&](const auto* args) { visit(*args, output); }, run.args);
  return output;
}

// A visitor: every output under its name.
class KeepOutputs {
 public:
  KeepOutputs(std::string prefix, HostReader& reader, ValueStore& store) : prefix_(std::move(prefix)), reader_(reader), store_(store) {}
  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& tensor) {
    const bool has_gaps = std::string_view(name) == "selection.positions";  // behind each row's count lies what was there before
    if (!tensor.empty() && !has_gaps) store_.add(prefix_ + name, reader_.here(tensor));
  }
  void inout(const char* name, const Tensor& tensor) { out(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}

 private:
  std::string prefix_;
  HostReader& reader_;
  ValueStore& store_;
};

// "layers.3.experts.linear_experts.down_proj."
std::string value_prefix(const CallName& name) {
  const std::string layer = name.layer < 0 ? "" : fmt::format("layers.{}.", name.layer);
  return fmt::format("{}{}.{}.{}", layer, name.block, name.op, name.slot.empty() ? "" : name.slot + ".");
}

class Tracer {
 public:
  Tracer(const TraceSubject& subject, const TraceWishes& wishes)
      : subject_(subject),
        wishes_(wishes),
        index_(subject.model, subject.weights),
        tokens_(wishes.prompt),
        chunk_(std::min<std::int64_t>(wishes.chunk, std::ssize(wishes.prompt))),
        main_(subject, subject.precision, subject.cache_type, chunk_, context()),
        check_(index_, wishes.bundle) {
    const bool is_exact = subject.precision == Precision::exact && subject.cache_type == KvCacheType::automatic;
    if (wishes.compare_exact == Wish::yes && !is_exact) {
      exact_.emplace(subject, Precision::exact, KvCacheType::automatic, chunk_, context());
      report_.compared_exact = true;
    }
    report_.prompt_tokens = std::ssize(wishes.prompt);
    if (wishes.keep_values == Wish::yes) main_.runner.taps = taps();
  }

  Result<TraceReport> run() {
    TRY(main_.runner.status());
    if (exact_) TRY(exact_->runner.status());
    const std::int64_t total = std::ssize(wishes_.prompt) + wishes_.decode_steps;
    for (std::int64_t first = 0; first < std::ssize(tokens_);) {
      if (wishes_.interrupted && wishes_.interrupted()) return Error{"interrupted", "give a shorter prompt, or --decode 0"};
      const std::int64_t count = std::min<std::int64_t>(chunk_, std::ssize(tokens_) - first);
      TRY(step(first, count));
      first += count;
      if (wishes_.progress) wishes_.progress(first, total);
      if (report_.origin) break;
      if (first == std::ssize(tokens_) && first < total) decode();
    }
    return finished();
  }

 private:
  std::int64_t context() const { return std::ssize(wishes_.prompt) + wishes_.decode_steps + 1; }

  Taps taps() {
    return [this](std::string_view name, std::int64_t layer, const Tensor& value) {
      if (report_.origin) return;
      report_.values.add(name == "hidden" ? fmt::format("hidden.{}", layer) : fmt::format("layers.{}.{}", layer, name), value);
    };
  }

  Status step(std::int64_t first, std::int64_t count) {
    const auto part = std::span(tokens_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    exact_calls_.clear();
    if (exact_) run_exact(part, first);
    const Batch& batch = main_.stage(part, first);
    const bool faulty = wishes_.fault_position >= first && wishes_.fault_position < first + count;
    main_.runner.fault = faulty ? Fault{wishes_.fault.place, wishes_.fault_position - first} : Fault{};
    check_.begin_step(report_.steps);
    const StepOutput output = run_main(batch);
    if (!output.error.empty()) return Error{output.error, "use --device cpu"};
    if (wishes_.keep_values == Wish::yes) report_.values.add("logits", output.logits);
    if (bad_seen_ || !is_finite(output)) {
      const Taps kept = std::exchange(main_.runner.taps, {});
      report_.origin = find_origin(main_.runner, batch, report_.steps, index_, wishes_.bundle);
      main_.runner.taps = kept;
    } else {
      const std::int64_t vocab = output.logits.dim(1);
      const float* const last = output.logits.f32() + (count - 1) * vocab;
      best_ = static_cast<std::int32_t>(std::max_element(last, last + vocab) - last);
    }
    ++report_.steps;
    return main_.runner.status();
  }

  static bool is_finite(const StepOutput& output) {
    const std::int32_t* const bad = output.first_bad.i32();
    const float* const logits = output.logits.f32();
    return std::all_of(bad, bad + output.first_bad.dim(0), [](std::int32_t place) { return place == Guard::kClean; }) &&
           std::all_of(logits, logits + output.logits.shape.elements(), [](float logit) { return std::isfinite(logit); });
  }

  void decode() {
    report_.generated.push_back(best_);
    tokens_.push_back(best_);
  }

  void run_exact(std::span<const std::int32_t> part, std::int64_t first) {
    StepProbe probe(Look::outputs);
    probe.each = [this](const OpRun& run, const CallStats& call, HostReader& reader) {
      MainOutput output = main_output(run, reader);
      exact_calls_.push_back({.name = call.name, .output = std::move(output.values), .slots = std::move(output.slots)});
    };
    probe.begin_step();
    const ProbeScope scope(exact_->runner.ops(), &probe);
    static_cast<void>(exact_->runner.run(exact_->stage(part, first)));
  }

  StepOutput run_main(const Batch& batch) {
    StepProbe probe(Look::outputs);
    if (wishes_.check_ops == Wish::yes) check_.attach(probe);
    probe.each = [this, check = std::move(probe.each)](const OpRun& run, const CallStats& call, HostReader& reader) {
      if (check) check(run, call, reader);
      take(run, call, reader);
    };
    probe.begin_step();
    const ProbeScope scope(main_.runner.ops(), &probe);
    return main_.runner.run(batch);
  }

  void take(const OpRun& run, const CallStats& call, HostReader& reader) {
    CallSummary& summary = summary_of(call);
    bad_seen_ |= CallStats::bad(call.outputs) != nullptr;  // some never reach the guard: an index key that is NaN loses every comparison
    if (!call.outputs.empty()) summary.output.merge(call.outputs.front().values);
    summary.took_us += call.took_us;
    const ExactCall* const exact = same_exact_call(call);
    if (exact != nullptr) compare(main_output(run, reader), *exact, call, summary);
    if (const auto* const* route = std::get_if<const RouteArgs*>(&run.args)) count_experts(**route, call, exact, reader);
    if (const auto* const* attend = std::get_if<const AttendLatentArgs*>(&run.args)) look_at_selection(**attend, call, reader);
    if (wishes_.keep_values == Wish::yes)
      std::visit([&](const auto* args) { visit(*args, KeepOutputs(value_prefix(call.name), reader, report_.values)); }, run.args);
  }

  // The exact run's call of that name that comes next, if there is one: it may do in several ops what the main run does in one.
  const ExactCall* same_exact_call(const CallStats& call) {
    if (call.index == 0) next_exact_ = 0;
    for (std::size_t i = next_exact_; i < exact_calls_.size(); ++i) {
      if (!(exact_calls_[i].name == call.name)) continue;
      next_exact_ = i + 1;
      return &exact_calls_[i];
    }
    return nullptr;
  }

  CallSummary& summary_of(const CallStats& call) {
    const auto known =
        std::find_if(report_.calls.begin(), report_.calls.end(), [&](const CallSummary& summary) { return summary.name == call.name; });
    if (known != report_.calls.end()) return *known;
    report_.calls.push_back({.name = call.name, .kernel = call.kernel});
    return report_.calls.back();
  }

  void compare(const MainOutput& here, const ExactCall& exact, const CallStats& call, CallSummary& summary) {
    if (call.name.op == "route") { routed_alike_ = here.slots == exact.slots; }
    const bool by_slot = call.name.op == "gated_experts" ||
                         (call.name.block == "experts" && (call.name.op == "linear_experts" || call.name.op == "silu_mul"));
    if ((by_slot && !routed_alike_) || here.values.size() != exact.output.size()) return;
    for (std::size_t i = 0; i < here.values.size(); ++i) {
      const double error = static_cast<double>(here.values[i]) - exact.output[i];
      if (!std::isfinite(error)) continue;
      summary.error_squares += error * error;
      summary.exact_squares += static_cast<double>(exact.output[i]) * exact.output[i];
      ++summary.compared;
    }
  }

  void count_experts(const RouteArgs& route, const CallStats& call, const ExactCall* exact, HostReader& reader) {
    auto known = std::find_if(report_.routers.begin(), report_.routers.end(),
                              [&](const RouterBalance& balance) { return balance.layer == call.name.layer; });
    if (known == report_.routers.end()) known = report_.routers.insert(known, {.layer = call.name.layer, .chosen = {}});
    const Tensor here = reader.here(route.slots.begin);
    known->chosen.resize(static_cast<std::size_t>(here.dim(0) - 1));
    for (std::size_t expert = 0; expert < known->chosen.size(); ++expert)
      known->chosen[expert] += here.i32()[expert + 1] - here.i32()[expert];
    known->tokens += route.logits.dim(0);
    if (exact != nullptr && !routed_alike_)
      known->rerouted += rerouted_tokens(main_slots(route, reader), exact->slots, std::ssize(known->chosen), route.logits.dim(0));
  }

  static std::vector<std::int32_t> main_slots(const RouteArgs& route, HostReader& reader) {
    std::vector<std::int32_t> slots;
    for (const Tensor& tensor : {route.slots.begin, route.slots.tokens}) {
      const Tensor here = reader.here(tensor);
      slots.insert(slots.end(), here.i32(), here.i32() + here.shape.elements());
    }
    return slots;
  }

  // Tokens whose experts are others.
  static std::int64_t rerouted_tokens(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b, std::int64_t experts,
                                      std::int64_t tokens) {
    const auto experts_of = [&](const std::vector<std::int32_t>& slots) {
      std::vector<std::vector<std::int64_t>> of(static_cast<std::size_t>(tokens));
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        for (std::int32_t slot = slots[static_cast<std::size_t>(expert)]; slot < slots[static_cast<std::size_t>(expert) + 1]; ++slot)
          of[static_cast<std::size_t>(slots[static_cast<std::size_t>(experts + 1 + slot)])].push_back(expert);
      }
      return of;
    };
    const auto of_a = experts_of(a), of_b = experts_of(b);
    std::int64_t count = 0;
    for (std::size_t t = 0; t < of_a.size(); ++t) count += of_a[t] == of_b[t] ? 0 : 1;
    return count;
  }

  void look_at_selection(const AttendLatentArgs& attend, const CallStats& call, HostReader& reader) {
    if (attend.selection.counts.empty()) return;
    auto known = std::find_if(report_.selections.begin(), report_.selections.end(),
                              [&](const SelectionQuality& quality) { return quality.layer == call.name.layer; });
    if (known == report_.selections.end()) known = report_.selections.insert(known, {.layer = call.name.layer});
    const Captured<AttendLatentArgs> here = captured(attend, reader);
    add_selection(here.args, *known);
  }

  TraceReport finished() {
    report_.wrong = check_.first();
    report_.checked_calls = check_.calls();
    report_.wrong_calls = check_.wrong_calls();
    report_.check_worst = check_.worst();
    report_.check_worst_place = check_.worst_place();
    return std::move(report_);
  }

  const TraceSubject& subject_;
  const TraceWishes& wishes_;
  WeightIndex index_;
  std::vector<std::int32_t> tokens_;
  std::int64_t chunk_;
  TracedRun main_;
  std::optional<TracedRun> exact_;
  StepCheck check_;
  TraceReport report_;
  std::vector<ExactCall> exact_calls_;
  std::size_t next_exact_ = 0;
  bool routed_alike_ = true;
  bool bad_seen_ = false;
  std::int32_t best_ = 0;
};

}  // namespace

std::optional<double> CallSummary::error() const {
  if (compared == 0 || exact_squares == 0) return std::nullopt;
  return std::sqrt(error_squares / exact_squares);
}

double RouterBalance::entropy() const {
  double total = 0, entropy = 0;
  for (const std::int64_t count : chosen) total += static_cast<double>(count);
  for (const std::int64_t count : chosen) {
    if (count > 0) entropy -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  }
  return chosen.size() < 2 ? 1 : entropy / std::log(static_cast<double>(chosen.size()));
}

double RouterBalance::max_share() const {
  double total = 0, most = 0;
  for (const std::int64_t count : chosen) {
    total += static_cast<double>(count);
    most = std::max(most, static_cast<double>(count));
  }
  return total > 0 ? most / total : 0;
}

std::int64_t RouterBalance::idle() const { return std::count(chosen.begin(), chosen.end(), 0); }

Result<TraceReport> trace(const TraceSubject& subject, const TraceWishes& wishes) {
  CHECK(!wishes.prompt.empty());
  return Tracer(subject, wishes).run();
}

}  // namespace reckoner::trace
