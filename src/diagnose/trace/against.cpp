#include "diagnose/trace/against.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "quant/resolve.h"

namespace reckoner::trace {
namespace {

// What others call the values that we tap, after "layers.N.".
struct Alias {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Alias kLayerAliases[] = {{"attention", "attention"},          {"attn", "attention"},         {"attn_out", "attention"},
                                   {"attn_output", "attention"},        {"self_attn", "attention"},    {"self_attn.o_proj", "attention"},
                                   {"self_attention", "attention"},     {"mlp", "feed_forward"},       {"mlp_out", "feed_forward"},
                                   {"mlp_output", "feed_forward"},      {"ffn", "feed_forward"},       {"ffn_out", "feed_forward"},
                                   {"feed_forward", "feed_forward"},    {"mlp.gate", "router_logits"}, {"router_logits", "router_logits"},
                                   {"mlp.gate.logits", "router_logits"}};
constexpr Alias kOtherAliases[] = {
    {"logits", "logits"}, {"lm_head", "logits"}, {"embed_tokens", "hidden.0"}, {"embeddings", "hidden.0"}, {"embedding", "hidden.0"}};

bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The number at the start, taken off with the point behind it.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty() && !drop_prefix(text, ".")) return std::nullopt;
  return number;
}

std::string without_output(std::string_view name) {
  for (const std::string_view suffix : {".output.0", ".output", ".out"}) {
    if (name.ends_with(suffix)) return std::string(name.substr(0, name.size() - suffix.size()));
  }
  return std::string(name);
}

// Of what leaves a layer: the next one's input; after the last there is a norm, whose input it is.
std::string after_layer(std::int64_t layer, std::int64_t layers) {
  return layer + 1 < layers ? fmt::format("hidden.{}", layer + 1) : "head.rms_norm.x";
}

// "q_a_proj": the value of the layer whose op has this weight.
std::string by_weight(std::int64_t layer, std::string_view rest, const ValueStore& values) {
  const std::string weight(rest.substr(rest.find_last_of('.') + 1));
  const std::string start = fmt::format("layers.{}.", layer);
  const bool shared = rest.find("shared_expert") != std::string_view::npos;
  const bool expert = !shared && rest.find("experts.") != std::string_view::npos;
  if (expert) return "";  // of one expert of many
  for (const StoredValue& value : values.values()) {
    if (!value.name.starts_with(start) || !value.name.ends_with("." + weight + ".y")) continue;
    if ((value.name.find(".shared_experts.") != std::string::npos) == shared && value.name.find(".linear_experts.") == std::string::npos)
      return value.name;
  }
  return "";
}

std::string in_layer(std::int64_t layer, std::string_view rest, std::int64_t layers, const ValueStore& values) {
  if (rest.empty() || rest == "output" || rest == "output.0" || rest == "hidden_out") return after_layer(layer, layers);
  if (rest == "input" || rest == "hidden" || rest == "input.0") return fmt::format("hidden.{}", layer);
  const std::string plain = without_output(rest);
  for (const Alias& alias : kLayerAliases) {
    if (plain == alias.theirs) return fmt::format("layers.{}.{}", layer, alias.ours);
  }
  return by_weight(layer, plain, values);
}

struct Floats {
  std::vector<float> values;
  std::string problem;
};

Floats floats_of(const Tensor& tensor) {
  Floats floats;
  if (tensor.dtype == DType::i32) {
    floats.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (std::size_t i = 0; i < floats.values.size(); ++i) {
      std::int32_t value = 0;
      std::memcpy(&value, tensor.data + i * sizeof(value), sizeof(value));
      floats.values[i] = static_cast<float>(value);
    }
    return floats;
  }
  if (tensor.dtype != DType::f32 && tensor.dtype != DType::bf16 && tensor.dtype != DType::f16) {
    floats.problem = fmt::format("{} is not compared", name(tensor.dtype));
    return floats;
  }
  for (std::int64_t i = 0; i < tensor.shape.elements(); ++i) floats.values.push_back(element_as_f32(tensor, i));
  return floats;
}

double rms(const float* values, std::int64_t count) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * values[i];
  return std::sqrt(squares / static_cast<double>(count));
}

// Rows against rows; theirs may be the last rows of ours (a dump of the last positions).
void compare_rows(const std::vector<float>& theirs, const StoredValue& ours, double tolerance, AlignedValue& aligned,
                  std::optional<Divergence>& divergence) {
  const std::int64_t width = ours.row_elements;
  const std::int64_t first = ours.rows() - aligned.rows;
  const double scale = rms(theirs.data(), std::ssize(theirs));
  double squares = 0;
  for (std::int64_t row = 0; row < aligned.rows; ++row) {
    const float* const expected = theirs.data() + row * width;
    const float* const found = ours.values.data() + (first + row) * width;
    double row_squares = 0, largest = -1;
    std::int64_t column = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      double error = std::fabs(static_cast<double>(found[i]) - expected[i]);
      if (std::isnan(error)) error = std::isnan(found[i]) && std::isnan(expected[i]) ? 0 : std::numeric_limits<double>::infinity();
      row_squares += error * error;
      if (error > largest) {
        largest = error;
        column = i;
      }
    }
    squares += row_squares;
    // A row that is small beside the others (a token of many zeros) is measured by them.
    const double own = std::fmax(rms(expected, width), 0.01 * scale);
    const double error = std::sqrt(row_squares / static_cast<double>(width)) / std::fmax(own, 1e-30);
    if (error > aligned.worst) {
      aligned.worst = error;
      aligned.worst_row = first + row;
    }
    if (error <= tolerance) continue;
    aligned.beyond = true;
    if (divergence) continue;
    divergence.emplace(Divergence{.theirs = aligned.theirs,
                                  .ours = aligned.ours,
                                  .place = {},
                                  .row = first + row,
                                  .column = column,
                                  .error = error,
                                  .tolerance = tolerance,
                                  .expected = expected[column],
                                  .found = found[column]});
  }
  aligned.error = std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, aligned.rows * width))) / std::fmax(scale, 1e-30);
}

// The expert of a slot, where the run had one step.
std::int64_t expert_of(const StoredValue& begin, std::int64_t slot) {
  for (std::size_t expert = 0; expert + 1 < begin.values.size(); ++expert) {
    if (static_cast<float>(slot) < begin.values[expert + 1]) return static_cast<std::int64_t>(expert);
  }
  return -1;
}

// Where in the model a value is from.
void describe(const TraceReport& report, Divergence& divergence) {
  std::string_view rest = divergence.ours;
  if (drop_prefix(rest, "hidden.")) {
    divergence.place = fmt::format("the residual stream before layer {}", rest);
  } else if (drop_prefix(rest, "layers.")) {
    const std::int64_t layer = take_number(rest).value_or(-1);
    std::string text(rest);
    const std::size_t point = text.find('.');
    if (point != std::string::npos) text = text.substr(0, point) + ": " + text.substr(point + 1);
    for (const std::string_view op :
         {"linear_experts.", "gated_experts.", "gated_linear.", "experts_combine.", "linear.", "rms_norm.", "add_bias.", "rope_heads."}) {
      const std::size_t at = text.find(op);
      if (at != std::string::npos) text[at + op.size() - 1] = ' ';
    }
    divergence.place = fmt::format("layer {}, {}", layer, text);
    const StoredValue* const begin = report.values.find(fmt::format("layers.{}.experts.route.slots.begin", layer));
    const bool by_slot = divergence.ours.find(".experts.linear_experts.") != std::string::npos ||
                         divergence.ours.find(".experts.gated_experts.") != std::string::npos ||
                         divergence.ours.find(".experts.silu_mul.") != std::string::npos;
    if (by_slot && begin != nullptr && report.steps == 1) {
      divergence.expert = expert_of(*begin, divergence.row);
      const StoredValue* const tokens = report.values.find(fmt::format("layers.{}.experts.route.slots.tokens", layer));
      if (tokens != nullptr) divergence.position = static_cast<std::int64_t>(tokens->values[static_cast<std::size_t>(divergence.row)]);
      divergence.place += fmt::format(", expert {}", divergence.expert);
      return;
    }
    if (by_slot) return;
  } else {
    divergence.place = divergence.ours;
  }
  divergence.position = divergence.row;
}

bool is_tap(std::string_view name) {
  if (name == "logits" || name.starts_with("hidden.")) return true;
  return name.ends_with(".attention") || name.ends_with(".feed_forward") || name.ends_with(".router_logits");
}

}  // namespace

double row_tolerance(Precision precision, std::int64_t layers) {
  if (precision == Precision::exact) return 1e-4;
  return 4 * std::sqrt(static_cast<double>(layers + 1) * 12) * 0x1p-9;
}

std::string our_name_of(std::string_view name, std::int64_t layers, const ValueStore& values) {
  if (values.find(name) != nullptr) return std::string(name);
  std::string_view rest = name;
  for (const std::string_view prefix : {"language_model.", "transformer.", "model.", "language_model.", "decoder."})
    drop_prefix(rest, prefix);
  if (values.find(rest) != nullptr) return std::string(rest);
  std::string_view number = rest;
  if (drop_prefix(number, "hidden_states.") || drop_prefix(number, "hidden.")) {
    const std::optional<std::int64_t> layer = take_number(number);
    return layer && number.empty() ? fmt::format("hidden.{}", *layer) : "";
  }
  if (drop_prefix(rest, "layers.") || drop_prefix(rest, "layer.") || drop_prefix(rest, "h.")) {
    const std::optional<std::int64_t> layer = take_number(rest);
    return layer ? in_layer(*layer, rest, layers, values) : "";
  }
  const std::string plain = without_output(rest);
  for (const Alias& alias : kOtherAliases) {
    if (plain == alias.theirs) return std::string(alias.ours);
  }
  if (plain == "norm" || plain == "final_norm" || plain == "ln_f") return fmt::format("hidden.{}", layers);
  return "";
}

Result<std::vector<std::int32_t>> prompt_of(const SafetensorsFile& dump, std::int64_t vocab) {
  const TensorEntry* const entry = dump.find("input_ids");
  const std::string path = dump.path().string();
  const char* const remedy = "dump the token ids too, as I32 or I64 `input_ids`";
  if (entry == nullptr) return Error{fmt::format("{}: expected a tensor 'input_ids', found none", path), remedy};
  const Tensor& tensor = entry->tensor;
  const bool one_row = tensor.shape.rank() == 1 || (tensor.shape.rank() == 2 && tensor.dim(0) == 1);
  if (!one_row || tensor.shape.elements() == 0 || (tensor.dtype != DType::i32 && tensor.dtype != DType::i64)) {
    return Error{fmt::format("{}: tensor 'input_ids': expected I32 or I64 [tokens], found {} {}", path, name(tensor.dtype),
                             tensor.shape.to_string()),
                 remedy};
  }
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tensor.shape.elements(); ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, tensor.data + i * size_bytes(tensor.dtype), static_cast<std::size_t>(size_bytes(tensor.dtype)));
    if (tensor.dtype == DType::i32) id = static_cast<std::int32_t>(id);
    if (id < 0 || id >= vocab)
      return Error{fmt::format("{}: tensor 'input_ids': expected token ids below {}, found {}", path, vocab, id),
                   "give a dump of this model"};
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Result<AgainstReport> compare_with(const SafetensorsFile& dump, const TraceReport& report, std::int64_t layers, double tolerance) {
  AgainstReport result{.tolerance = tolerance};
  std::map<std::string, const TensorEntry*> theirs_of;  // by our name
  for (const TensorEntry& entry : dump.tensors()) {
    if (entry.name == "input_ids") continue;
    const std::string ours = our_name_of(entry.name, layers, report.values);
    if (report.values.find(ours) == nullptr) {
      result.unmatched.push_back(entry.name +
                                 (ours.empty() ? ": no rule for this name" : fmt::format(": would be {}, which this run has not", ours)));
    } else if (!theirs_of.emplace(ours, &entry).second) {
      result.unmatched.push_back(fmt::format("{}: {} is compared with {} already", entry.name, ours, theirs_of[ours]->name));
    }
  }
  for (const StoredValue& value : report.values.values()) {
    const auto known = theirs_of.find(value.name);
    if (known == theirs_of.end()) {
      if (is_tap(value.name)) result.missing.push_back(value.name);
      continue;
    }
    const Floats theirs = floats_of(known->second->tensor);
    const std::string& their_name = known->second->name;
    const std::int64_t count = std::ssize(theirs.values);
    if (!theirs.problem.empty() || count == 0 || count % value.row_elements != 0 || count > std::ssize(value.values)) {
      result.unmatched.push_back(fmt::format(
          "{}: {}", their_name,
          !theirs.problem.empty() ? theirs.problem
                                  : fmt::format("{} elements beside [{}, {}] of ours", count, value.rows(), value.row_elements)));
      continue;
    }
    AlignedValue aligned{.theirs = their_name, .ours = value.name, .rows = count / value.row_elements};
    const bool had = result.first.has_value();
    compare_rows(theirs.values, value, tolerance, aligned, result.first);
    if (!had && result.first) describe(report, *result.first);
    result.aligned.push_back(std::move(aligned));
  }
  if (!result.aligned.empty()) return result;
  return Error{fmt::format("{}: none of its {} tensors is known here", dump.path().string(), dump.tensors().size()),
               "name them like `hidden.3`, `layers.3.attention` or `model.layers.3.self_attn.o_proj.output`"};
}

}  // namespace reckoner::trace
