// Would the loader take the weights? Its own code answers, over headers and the few values that it needs.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <sstream>

#include "base/mapped_file.h"
#include "diagnose/lint/checks.h"
#include "diagnose/lint/values.h"
#include "model/loader.h"

namespace reckoner::lint {
namespace {

// Small tensors are read into memory of our own; of the others only the shape is needed, but for scales in dtypes that the loader converts.
class HeaderSource : public TensorSource {
 public:
  explicit HeaderSource(const LintInput& input) : input_(input), files_(input) {}

  const Tensor* find(std::string_view name) const override {
    if (const auto known = found_.find(name); known != found_.end()) return &known->second;
    const LintTensor* tensor = input_.find(name);
    if (tensor == nullptr) return nullptr;
    Tensor view{.data = data_of(*tensor), .dtype = tensor->dtype, .shape = tensor->shape};
    return &found_.emplace(std::string(name), view).first->second;
  }
  std::string locate(std::string_view name) const override {
    const LintTensor* tensor = input_.find(name);
    return tensor != nullptr ? where(*tensor) : fmt::format("{}: tensor '{}'", input_.folder.string(), name);
  }
  bool used(const std::string& name) const { return found_.contains(name); }

 private:
  std::byte* data_of(const LintTensor& tensor) const {
    constexpr std::int64_t kSmall = 4096;
    if (tensor.shape.rank() <= 1 || tensor.bytes <= kSmall) {
      std::vector<std::byte>& bytes = copies_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(tensor.bytes, 1)));
      if (const std::optional<float> value = input_.scalar(&tensor); value && tensor.dtype == DType::f32) {
        std::memcpy(bytes.data(), &*value, sizeof(float));
      } else {
        files_.read(tensor, 0, std::span(bytes).first(static_cast<std::size_t>(tensor.bytes)));
      }
      return bytes.data();
    }
    auto file = mapped_.find(tensor.file);
    if (file == mapped_.end()) file = mapped_.emplace(tensor.file, MappedFile::open(tensor.file->path)).first;
    static std::byte none;
    return file->second ? const_cast<std::byte*>(file->second->bytes().data()) + tensor.offset : &none;
  }

  const LintInput& input_;
  ValueFiles files_;
  mutable std::map<std::string, Tensor, std::less<>> found_;
  mutable std::deque<std::vector<std::byte>> copies_;
  mutable std::map<const LintFile*, Result<MappedFile>> mapped_;
};

bool all_whole(const LintInput& input) {
  return !input.files.empty() && std::all_of(input.files.begin(), input.files.end(),
                                             [](const auto& file) { return !file->served || (file->header && file->header->layout); });
}

bool starts_with_any(std::string_view name, const auto& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The name in "file: tensor 'name': ..."
std::string tensor_in(const std::string& line) {
  const std::size_t begin = line.find("tensor '");
  if (begin == std::string::npos) return {};
  const std::size_t start = begin + std::string_view("tensor '").size();
  return line.substr(start, line.find('\'', start) - start);
}

// Whether an error of another kind says it already, and better.
bool is_reported(const LintReport& report, const std::string& line) {
  const std::string name = tensor_in(line);
  if (name.empty()) return line.starts_with("... and");
  if (name.find(".indexer.") != std::string::npos && (report.has("indexer-missing") || report.has("indexer-in-shared-layer"))) return true;
  for (const FindingGroup* group : report.groups()) {
    if (group->kind->severity != Severity::error) continue;
    for (const Finding& finding : group->findings) {
      if (finding.where.find("'" + name + "'") != std::string::npos) return true;
      if (group->kind->id == "mtp-partial" && finding.layer == number_after(name, "layers.")) return true;
    }
  }
  return false;
}

// "file: tensor 'x': what" as a finding.
Finding finding_of(const std::string& line) {
  const std::string name = tensor_in(line);
  const std::size_t quote = line.find("': ");
  const bool splits = !name.empty() && quote != std::string::npos;
  return {splits ? line.substr(0, quote + 1) : "", splits ? line.substr(quote + 3) : line, number_after(name, "layers."),
          number_after(name, ".experts.")};
}

// Whether a tensor belongs to a weight that was found, and refused for another reason.
bool is_part_of_a_weight(const LintInput& input, const HeaderSource& source, const LintTensor& tensor) {
  const LintModule* module = input.find_module(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
  return module != nullptr && module->data() != nullptr && module->data() != &tensor && source.used(module->data()->name);
}

std::int64_t weights_wanted(const LintInput& input) {
  std::int64_t wanted = 0;
  for_each_rule(*input.family, *input.model, [&](const WeightRule& rule) { wanted += count_places(rule, *input.model); });
  return wanted;
}

}  // namespace

void check_head(const LintInput& input, LintReport& report) {
  if (!input.model || input.family == nullptr || !all_whole(input)) return;
  const std::string head = std::string(input.family->prefix) + "lm_head";
  const LintModule* module = input.find_module(head);
  const bool present = module != nullptr && module->data() != nullptr;
  if (!input.model->tie_word_embeddings) {
    if (!present) report.add("head-missing", {fmt::format("tensor '{}.weight'", head), "missing; tie_word_embeddings is false"});
    return;
  }
  if (!present) return;
  const LintModule* embedding = input.find_module(std::string(input.family->prefix) + "model.embed_tokens");
  const auto text = [](const LintModule* m) {
    return m == nullptr || m->data() == nullptr ? "missing" : fmt::format("{} {}", name(m->data()->dtype), m->data()->shape.to_string());
  };
  report.add("tied-head-present", {where(*module->data()), fmt::format("{}; the embedding is {}", text(module), text(embedding))});
}

void check_weights(const LintInput& input, LintReport& report) {
  if (!input.model || input.family == nullptr || !all_whole(input) || report.has("tensor-twice")) return;
  const std::int64_t wanted = weights_wanted(input);
  const bool fused = std::any_of(input.tensors.begin(), input.tensors.end(),
                                 [](const LintTensor& tensor) { return tensor.name.ends_with(".experts.gate_up_proj"); });
  if (wanted > 2 * static_cast<std::int64_t>(input.tensors.size()) * (fused ? std::max<std::int64_t>(1, input.model->n_routed_experts) : 1))
    return report.add(
        "weights-refused",
        {"config.json", fmt::format("num_hidden_layers = {} and n_routed_experts = {} ask for {} weights, the checkpoint has {} tensors",
                                    input.model->num_hidden_layers, input.model->n_routed_experts, wanted, input.tensors.size())});
  const HeaderSource source(input);
  const Result<ModelWeights> weights = place_weights(*input.family, *input.model, source);
  if (!weights) {
    for (const std::string& line : lines_of(weights.error().what)) {
      if (!is_reported(report, line)) report.add("weights-refused", finding_of(line));
    }
  }
  const std::vector<std::string> mtp = mtp_prefixes(*input.family, *input.model, source);
  for (const LintTensor& tensor : input.tensors) {
    if (!tensor.served || source.used(tensor.name) || is_unneeded(tensor.name) || starts_with_any(tensor.name, mtp) ||
        starts_with_any(tensor.name, input.family->skipped))
      continue;
    if (!weights && is_part_of_a_weight(input, source, tensor)) continue;
    if (fused && tensor.name.find(".experts.") != std::string::npos) continue;
    const std::string line = fmt::format("{}: unknown; a {} of {} layers has no such tensor", where(tensor), input.model->model_type,
                                         input.model->num_hidden_layers);
    if (!is_reported(report, line)) report.add("weights-refused", finding_of(line));
  }
}

}  // namespace reckoner::lint
