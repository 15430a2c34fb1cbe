#include "diagnose/trace/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/trace/outputs.h"
#include "quant/format.h"

namespace reckoner::trace {
namespace {

// What the first pass finds: the call, and whether what it read was bad already.
struct Found {
  std::int64_t index = -1;
  bool in_inputs = false;
  ArgumentStats argument;
  CallStats call;
};

// What the second pass keeps of that call.
struct Kept {
  std::optional<AnyCaptured> before, after;
  std::vector<std::int32_t> slot_begin, slot_tokens;  // of the layer's experts
};

Found first_bad_call(StepRunner& runner, const Batch& batch, std::int64_t first_layer) {
  Found found;
  StepProbe probe(Look::both);
  probe.first_layer = first_layer;
  probe.each = [&](const OpRun&, const CallStats& call, HostReader&) {
    const ArgumentStats* const input = CallStats::bad(call.inputs);
    const ArgumentStats* const output = CallStats::bad(call.outputs);
    if (input == nullptr && output == nullptr) return;
    found = {.index = call.index, .in_inputs = input != nullptr, .argument = input != nullptr ? *input : *output, .call = call};
    probe.stop_looking();
  };
  probe.begin_step();
  const ProbeScope scope(runner.ops(), &probe);
  static_cast<void>(runner.run(batch));
  return found;
}

std::vector<std::int32_t> integers(const Tensor& tensor, HostReader& reader) {
  const Tensor here = reader.here(tensor);
  return {here.i32(), here.i32() + here.shape.elements()};
}

Kept keep_call(StepRunner& runner, const Batch& batch, std::int64_t index, const WeightIndex& weights) {
  Kept kept;
  const HostWeight host_weight = [&](const Weight& weight) { return weights.on_host(weight); };
  const auto capture = [&](const OpRun& run, HostReader& reader) {
    return std::visit([&](const auto* args) -> AnyCaptured { return captured(*args, reader, host_weight); }, run.args);
  };
  StepProbe probe(Look::none);
  probe.each_before = [&](const OpRun& run, std::int64_t at, HostReader& reader) {
    const auto keep_slots = [&](const ExpertSlots& slots) {
      kept.slot_begin = integers(slots.begin, reader);
      kept.slot_tokens = integers(slots.tokens, reader);
    };
    if (const auto* const* experts = std::get_if<const LinearExpertsArgs*>(&run.args)) keep_slots((*experts)->slots);
    if (const auto* const* experts = std::get_if<const GatedExpertsArgs*>(&run.args)) keep_slots((*experts)->slots);
    if (const auto* const* experts = std::get_if<const ExpertsCombineArgs*>(&run.args)) keep_slots((*experts)->slots);
    if (at == index) kept.before.emplace(capture(run, reader));
  };
  probe.each = [&](const OpRun& run, const CallStats& call, HostReader& reader) {
    if (call.index != index) return;
    kept.after.emplace(capture(run, reader));
    probe.stop_looking();
  };
  probe.begin_step();
  const ProbeScope scope(runner.ops(), &probe);
  static_cast<void>(runner.run(batch));
  return kept;
}

// Rows of an output with a value that is not finite.
void note_rows(const AnyCaptured& after, Origin& origin) {
  std::visit(
      [&](const auto& call) {
        for (const OutputValues& output : outputs_of(call.args)) {
          if (output.name != origin.argument) continue;
          std::int64_t last = -1;
          for (std::size_t i = 0; i < output.values.size(); ++i) {
            const std::int64_t row = static_cast<std::int64_t>(i) / output.row_elements;
            if (std::isfinite(output.values[i]) || row == last) continue;
            last = row;
            ++origin.bad_rows;
            if (origin.rows.size() < 8) origin.rows.push_back(row);
          }
        }
      },
      after);
}

// The expert of a slot.
std::int64_t expert_of(const std::vector<std::int32_t>& begin, std::int64_t slot) {
  const auto next = std::upper_bound(begin.begin(), begin.end(), slot);
  return next == begin.begin() || next == begin.end() ? -1 : next - begin.begin() - 1;
}

// Which row of the step an output's row belongs to.
void note_token(const Found& found, const Kept& kept, const Batch& batch, Origin& origin) {
  const std::int64_t tokens = batch.tokens.dim(0);
  const std::int64_t rows = found.argument.values.count / std::max<std::int64_t>(1, found.argument.row_elements);
  const bool by_slot = origin.call.op == "linear_experts" || origin.call.op == "gated_experts" ||
                       (origin.call.block == "experts" && origin.call.op == "silu_mul") ||
                       (origin.call.op == "combine" && origin.argument == "rows") ||
                       (origin.call.op == "experts_combine" && origin.argument == "x");
  const bool input_by_token =
      (origin.call.op == "linear_experts" || origin.call.op == "gated_experts") && found.in_inputs && rows == tokens;
  if (by_slot && !input_by_token) {
    origin.expert = expert_of(kept.slot_begin, origin.row);
    if (origin.row < std::ssize(kept.slot_tokens)) origin.token = kept.slot_tokens[static_cast<std::size_t>(origin.row)];
  } else if (origin.call.block == "head" && rows == batch.sample_rows.dim(0) && origin.call.op != "rms_norm") {
    origin.token = batch.sample_rows.i32()[origin.row];
  } else if (rows >= tokens && rows % tokens == 0) {
    origin.token = origin.row / (rows / tokens);  // a row a token, or one for each of its heads
  } else {
    origin.token = found.call.first_row + origin.row;
  }
  if (origin.token >= 0 && origin.token < tokens) origin.position = batch.places.positions.i32()[origin.token];
}

// The rows of a weight that an output element is made of.
struct Suspect {
  Weight weight;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

template <class Args>
std::optional<Suspect> suspect_of(const Args&, const Origin&) {
  return std::nullopt;
}
std::optional<Suspect> suspect_of(const LinearArgs& args, const Origin& origin) { return Suspect{args.w, origin.column, 1}; }
std::optional<Suspect> suspect_of(const LinearExpertsArgs& args, const Origin& origin) {
  if (origin.expert < 0 || origin.expert >= std::ssize(args.experts)) return std::nullopt;
  return Suspect{args.experts[static_cast<std::size_t>(origin.expert)], origin.column, 1};
}
// The one of two rows that has a bad element, or the first.
Suspect worse_of(const Weight& first, const Weight& second, std::int64_t row) {
  return find_bad_element(first, row, 1) || !find_bad_element(second, row, 1) ? Suspect{first, row, 1} : Suspect{second, row, 1};
}
std::optional<Suspect> suspect_of(const GatedLinearArgs& args, const Origin& origin) { return worse_of(args.gate, args.up, origin.column); }
std::optional<Suspect> suspect_of(const GatedExpertsArgs& args, const Origin& origin) {
  if (origin.expert < 0 || origin.expert >= std::ssize(args.gate)) return std::nullopt;
  const auto expert = static_cast<std::size_t>(origin.expert);
  return worse_of(args.gate[expert], args.up[expert], origin.column);
}
// Of the token's experts the first with a bad element there; else the shared one.
std::optional<Suspect> suspect_of(const ExpertsCombineArgs& args, const Origin& origin) {
  const std::int64_t top_k = args.weights.dim(1);
  const std::vector<std::int32_t> begin(args.slots.begin.i32(), args.slots.begin.i32() + args.slots.begin.dim(0));
  for (std::int64_t k = 0; k < top_k; ++k) {
    const std::int64_t expert = expert_of(begin, args.slot_of.i32()[origin.row * top_k + k]);
    if (expert < 0 || expert >= std::ssize(args.experts)) continue;
    const Weight& w = args.experts[static_cast<std::size_t>(expert)];
    if (find_bad_element(w, origin.column, 1)) return Suspect{w, origin.column, 1};
  }
  return Suspect{args.shared, origin.column, 1};
}
std::optional<Suspect> suspect_of(const LinearGroupArgs& args, const Origin& origin) {
  return Suspect{args.parts[static_cast<std::size_t>(part_of(origin.argument))].w, origin.column, 1};
}
std::optional<Suspect> suspect_of(const EmbedArgs& args, const Origin& origin) {
  return Suspect{args.table, args.tokens.i32()[origin.row], 1};
}
std::optional<Suspect> suspect_of(const LatentQueryArgs& args, const Origin& origin) {
  const std::int64_t head_rows = args.kv_b.rows / args.q.dim(1);
  return Suspect{args.kv_b, origin.column / args.y.dim(2) * head_rows, args.nope};
}
std::optional<Suspect> suspect_of(const LatentValueArgs& args, const Origin& origin) {
  const std::int64_t head_rows = args.kv_b.rows / args.x.dim(1);
  return Suspect{args.kv_b, origin.column / args.y.dim(2) * head_rows + args.nope + origin.column % args.y.dim(2), 1};
}

// Whether a weight is to blame.
bool blame_weight(const Suspect& suspect, const WeightIndex& weights, Origin& origin) {
  const Weight& w = suspect.weight;
  origin.weight = w.name;
  const std::optional<BadElement> bad = find_bad_element(w, suspect.first_row, suspect.rows);
  origin.weight_row = bad ? bad->row : suspect.first_row;
  origin.weight_col = bad ? bad->col : -1;
  const std::int64_t col = bad ? bad->col : 0;
  origin.place = weights.code_place(w, origin.weight_row, col);
  origin.scale_place = weights.scale_place(w, origin.weight_row, col);
  if (!bad) return false;
  origin.cause = bad->by_scale ? Cause::weight_scale : Cause::weight_value;
  origin.detail = bad->by_scale ? fmt::format("the block scale at row {}, column {} is {}", bad->row, bad->col, bad->scale)
                                : fmt::format("the element at row {}, column {} is {}", bad->row, bad->col, bad->value);
  if (bad->by_scale && origin.scale_place) std::swap(origin.place, origin.scale_place);
  return true;
}

// Whether the op's reference makes something finite of the same inputs.
template <class Args>
bool reference_is_finite(const Captured<Args>& before) {
  const Captured<Args> copy = copy_of(before);
  reference(copy.args);
  for (const OutputValues& output : outputs_of(copy.args)) {
    if (!std::all_of(output.values.begin(), output.values.end(), [](double value) { return std::isfinite(value); })) return false;
  }
  return true;
}

void blame(const Kept& kept, const WeightIndex& weights, Origin& origin) {
  std::visit(
      [&](const auto& before) {
        const std::optional<Suspect> suspect = suspect_of(before.args, origin);
        if (suspect && blame_weight(*suspect, weights, origin)) return;
        const bool finite = reference_is_finite(before);
        origin.cause = finite ? Cause::kernel : Cause::overflow;
        origin.detail =
            finite ? fmt::format("inputs and weights are finite, and the reference makes finite values of them: {} is wrong", origin.kernel)
                   : "inputs and weights are finite; the result is beyond the range of float, in the reference too";
      },
      *kept.before);
}

// What an op reads is bad although no op before it wrote anything bad.
void blame_input(const Found& found, const std::string& vector, const WeightIndex& weights, Origin& origin) {
  if (!vector.empty()) {
    origin.cause = Cause::vector_value;
    origin.weight = vector;
    origin.place = weights.vector_place(vector, found.argument.values.first_bad);
    origin.detail = fmt::format("element {} of {} is {}", found.argument.values.first_bad, vector, origin.value);
    return;
  }
  const bool is_cache = origin.argument == "cache" || origin.argument == "keys" || origin.argument == "values";
  origin.cause = is_cache ? Cause::cache : Cause::overwritten;
  origin.detail = is_cache ? "an earlier step, or something that is no op, wrote it into the cache"
                           : "the op that wrote it had left it finite: something else wrote there";
}

std::string vector_argument(StepRunner& runner, const Batch& batch, const Found& found, const WeightIndex& weights) {
  std::string name;
  struct Find {
    const std::string& argument;
    const WeightIndex& index;
    std::string& into;
    void in(const char* name, const Tensor& tensor) {
      if (argument == name) into = index.vector_name(tensor);
    }
    void out(const char*, const Tensor&) {}
    void inout(const char*, const Tensor&) {}
    void weight(const char*, const Weight&) {}
    void weights(const char*, std::span<const Weight>) {}
    void places(const TokenPlaces&) {}
    void cache_in(const char*, const CacheView&) {}
    void cache_out(const char*, const CacheView&) {}
  };
  StepProbe probe(Look::none);
  probe.each_before = [&](const OpRun& run, std::int64_t at, HostReader&) {
    if (at != found.index) return;
    std::visit([&](const auto* args) { visit(*args, Find{found.argument.name, weights, name}); }, run.args);
    probe.stop_looking();
  };
  probe.begin_step();
  const ProbeScope scope(runner.ops(), &probe);
  static_cast<void>(runner.run(batch));
  return name;
}

std::string place_text(const FilePlace& place) { return fmt::format("{} at byte {} of {}", place.tensor, place.file_offset, place.file); }

}  // namespace

std::string_view name(Cause cause) {
  constexpr std::string_view kNames[] = {"weight_scale", "weight_value", "vector_value", "kernel", "overflow", "cache", "overwritten"};
  return kNames[static_cast<std::size_t>(cause)];
}

std::string Origin::sentence() const {
  std::string where = fmt::format("step {}, {}", step, call.text());
  if (expert >= 0) where += fmt::format(", expert {}", expert);
  where += fmt::format(", {} row {}", argument, row);
  if (position >= 0) where += fmt::format(" (position {})", position);
  where += fmt::format(", column {}, rank {}", column, rank);
  std::string text = fmt::format("{}: the first value that is not finite ({}): {}", where, std::isnan(value) ? "NaN" : "infinity", detail);
  if (place && cause != Cause::kernel && cause != Cause::overflow) text += "; " + place_text(*place);
  if (!weight.empty() && (cause == Cause::kernel || cause == Cause::overflow)) text += fmt::format(" (weight {})", weight);
  return text;
}

std::int64_t layer_of(std::int32_t place, std::int64_t layers) {
  if (place == Guard::kClean) return layers;  // the layers are fine: what comes after them is not
  return place == GuardPlace::kEmbedding ? 0 : (place - 1) / 2;
}

BundleAbout about_origin(const Origin& origin) {
  BundleAbout about{{"step", std::to_string(origin.step)},
                    {"place", origin.call.text()},
                    {"layer", std::to_string(origin.call.layer)},
                    {"block", origin.call.block},
                    {"kernel", origin.kernel},
                    {"rank", std::to_string(origin.rank)},
                    {"cause", std::string(name(origin.cause))},
                    {"origin", origin.sentence()}};
  if (origin.expert >= 0) about["expert"] = std::to_string(origin.expert);
  if (!origin.weight.empty()) about["weight"] = origin.weight;
  if (origin.place) about["bytes"] = place_text(*origin.place);
  return about;
}

std::optional<Origin> find_origin(StepRunner& runner, const Batch& batch, std::int64_t step, const WeightIndex& weights,
                                  const BundleWish& wish, std::int64_t first_layer) {
  const Found found = first_bad_call(runner, batch, first_layer);
  if (found.index < 0) return std::nullopt;
  Origin origin{.step = step,
                .call = found.call.name,
                .kernel = found.call.kernel,
                .argument = found.argument.name,
                .rows = {},
                .row = found.argument.values.first_bad / found.argument.row_elements,
                .column = found.argument.values.first_bad % found.argument.row_elements,
                .value = found.argument.values.bad_value};
  const Kept kept = keep_call(runner, batch, found.index, weights);
  if (!kept.before || !kept.after) {
    origin.detail = "run once more, the step called other ops";
    return origin;
  }
  note_rows(*kept.after, origin);
  note_token(found, kept, batch, origin);
  if (found.in_inputs) {
    blame_input(found, vector_argument(runner, batch, found, weights), weights, origin);
  } else {
    blame(kept, weights, origin);
  }
  if (wish.path.empty()) return origin;
  BundleAbout about = wish.about;
  about.merge(about_origin(origin));
  BundleLimits limits = wish.limits;
  limits.column = origin.column;
  const Status written = write_bundle(wish.path, *kept.before, *kept.after, about, limits);
  if (written.ok()) origin.bundle = wish.path.string();
  if (!written.ok()) origin.bundle_error = written.error().what;
  return origin;
}

}  // namespace reckoner::trace
