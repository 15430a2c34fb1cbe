// Reading of reference files.
#include <fmt/format.h>

#include <cstring>

#include "diagnose/verify/verify.h"

namespace reckoner {
namespace {

class ReferenceFile {
 public:
  ReferenceFile(const SafetensorsFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return file_.find(prefix_ + name) != nullptr; }
  Error error(const std::string& name, const std::string& expected, const std::string& found) const {
    return {fmt::format("{}: tensor '{}{}': expected {}, found {}", file_.path().string(), prefix_, name, expected, found),
            "use a reference file that was recorded for this model"};
  }
  // The tensor's elements; its shape must match `shape`, where -1 means any.
  template <class T>
  Result<std::vector<T>> read(const std::string& name, const Shape& shape) const {
    constexpr DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::i32;
    const std::string expected = fmt::format("{} {}", reckoner::name(dtype), shape.to_string());
    const TensorEntry* entry = file_.find(prefix_ + name);
    if (entry == nullptr) return error(name, expected, "none");
    const Tensor& tensor = entry->tensor;
    bool fits = tensor.dtype == dtype && tensor.shape.rank() == shape.rank();
    for (int axis = 0; fits && axis < shape.rank(); ++axis) fits = shape[axis] == -1 || shape[axis] == tensor.dim(axis);
    if (!fits) return error(name, expected, fmt::format("{} {}", reckoner::name(tensor.dtype), tensor.shape.to_string()));
    std::vector<T> values(static_cast<std::size_t>(tensor.shape.elements()));
    std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
    return values;
  }

 private:
  const SafetensorsFile& file_;
  std::string prefix_;
};

// The published form: everything at every position.
Status read_full(const ReferenceFile& file, const ModelConfig& config, ReferenceCase& reference) {
  const auto tokens = static_cast<std::int64_t>(reference.input_ids.size());
  reference.logits = TRY(file.read<float>("logits", {tokens, config.vocab_size}));
  for (std::int64_t layer = 0; layer <= config.num_hidden_layers; ++layer) {
    std::vector<float> hidden = TRY(file.read<float>(fmt::format("hidden.{}", layer), {tokens, config.hidden_size}));
    reference.hidden.push_back(std::move(hidden));
  }
  return {};
}

// The compact form: logits of the last positions, hidden states of the last one.
Status read_compact(const ReferenceFile& file, const ModelConfig& config, ReferenceCase& reference) {
  const auto tokens = static_cast<std::int64_t>(reference.input_ids.size());
  reference.logits = TRY(file.read<float>("last_logits", {-1, config.vocab_size}));
  reference.first_logit_row = tokens - static_cast<std::int64_t>(reference.logits.size()) / config.vocab_size;
  reference.argmax = TRY(file.read<std::int32_t>("argmax", {tokens}));
  reference.max_logprob = TRY(file.read<float>("max_logprob", {tokens}));
  reference.generated = TRY(file.read<std::int32_t>("generated", {-1}));
  const std::vector<float> hidden = TRY(file.read<float>("hidden_last", {config.num_hidden_layers + 1, config.hidden_size}));
  reference.first_hidden_row = tokens - 1;
  for (auto row = hidden.begin(); row != hidden.end(); row += config.hidden_size)
    reference.hidden.emplace_back(row, row + config.hidden_size);
  if (reference.first_logit_row < 0)
    return file.error("last_logits", "at most one row a token", fmt::format("{} rows", tokens - reference.first_logit_row));
  return {};
}

Result<ReferenceCase> read_case(const ReferenceFile& file, const std::string& name, const ModelConfig& config) {
  ReferenceCase reference{.name = name, .vocab = config.vocab_size};
  reference.input_ids = TRY(file.read<std::int32_t>("input_ids", {-1}));
  if (reference.input_ids.empty()) return file.error("input_ids", "at least one token", "none");
  for (const std::int32_t id : reference.input_ids) {
    if (id < 0 || id >= config.vocab_size)
      return file.error("input_ids", fmt::format("token ids below {}", config.vocab_size), std::to_string(id));
  }
  TRY(file.has("logits") ? read_full(file, config, reference) : read_compact(file, config, reference));
  return reference;
}

}  // namespace

Result<std::vector<ReferenceCase>> read_reference(const std::string& path, const ModelConfig& config) {
  const SafetensorsFile file = TRY(SafetensorsFile::open(path));
  std::vector<ReferenceCase> cases;
  constexpr std::string_view kIds = "input_ids";
  for (const TensorEntry& entry : file.tensors()) {
    if (!entry.name.ends_with(kIds)) continue;
    const std::string prefix = entry.name.substr(0, entry.name.size() - kIds.size());
    const std::string name = prefix.empty() ? "reference" : prefix.substr(0, prefix.size() - 1);
    ReferenceCase reference = TRY(read_case(ReferenceFile(file, prefix), name, config));
    cases.push_back(std::move(reference));
  }
  if (!cases.empty()) return cases;
  return Error{fmt::format("{}: expected a tensor 'input_ids' or '<case>.input_ids', found none", path),
               "use a reference file that was recorded for this model"};
}

}  // namespace reckoner
