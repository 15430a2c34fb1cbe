#include "model/fused_experts.h"

#include <charconv>
#include <optional>

namespace reckoner {
namespace {

// "<before>.experts.7.up_proj.weight" taken apart.
struct ExpertName {
  std::string before;  // up to and with ".experts."
  std::int64_t expert = 0;
  std::string_view projection;  // "up_proj"
};

std::optional<ExpertName> parse(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  constexpr std::string_view kWeight = ".weight";
  const std::size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos || !name.ends_with(kWeight)) return std::nullopt;
  const std::size_t number = at + kExperts.size();
  ExpertName parsed{.before = std::string(name.substr(0, number))};
  const auto [end, error] = std::from_chars(name.data() + number, name.data() + name.size(), parsed.expert);
  if (error != std::errc() || *end != '.') return std::nullopt;
  const auto after = static_cast<std::size_t>(end - name.data()) + 1;
  parsed.projection = name.substr(after, name.size() - kWeight.size() - after);
  return parsed;
}

// Part `index` of `parts` equal ones of an expert's rows; nothing if the tensor is not of that kind.
std::optional<Tensor> part_of(const Tensor* fused, std::int64_t expert, std::int64_t index, std::int64_t parts) {
  if (fused == nullptr || fused->shape.rank() != 3 || expert >= fused->dim(0) || fused->dim(1) % parts != 0) return std::nullopt;
  Tensor tensor = *fused;
  tensor.shape = {fused->dim(1) / parts, fused->dim(2)};
  tensor.data += (expert * parts + index) * tensor.bytes();
  return tensor;
}

std::optional<Tensor> find_part(const TensorSource& source, const ExpertName& name) {
  if (name.projection == "gate_proj") return part_of(source.find(name.before + "gate_up_proj"), name.expert, 0, 2);
  if (name.projection == "up_proj") return part_of(source.find(name.before + "gate_up_proj"), name.expert, 1, 2);
  if (name.projection == "down_proj") return part_of(source.find(name.before + "down_proj"), name.expert, 0, 1);
  return std::nullopt;
}

}  // namespace

const Tensor* FusedExperts::find(std::string_view name) const {
  if (const Tensor* tensor = source_.find(name)) return tensor;
  if (const auto known = parts_.find(name); known != parts_.end()) return &known->second;
  const std::optional<ExpertName> parsed = parse(name);
  if (!parsed) return nullptr;
  const std::optional<Tensor> part = find_part(source_, *parsed);
  return part ? &parts_.emplace(name, *part).first->second : nullptr;
}

}  // namespace reckoner
