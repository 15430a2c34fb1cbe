#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "formats/safetensors.h"
#include "model/fused_experts.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/mx.h"
#include "quant/nvfp4.h"

namespace reckoner {
namespace {

constexpr QuantiseFormatName kFormats[] = {{"nvfp4", QuantFormat::nvfp4},
                                           {"fp8-block", QuantFormat::fp8_block},
                                           {"fp8-channel", QuantFormat::fp8_channel},
                                           {"int4-g32", QuantFormat::int4_g32},
                                           {"mxfp4", QuantFormat::mxfp4}};

// Projections that other servers run as one matrix with one tensor-wide scale: those of one line.
constexpr std::string_view kFused[][3] = {{"gate_proj", "up_proj"}, {"q_a_proj", "kv_a_proj_with_mqa"}, {"q_proj", "k_proj", "v_proj"}};

bool is_selected(WeightRole role, ModuleSet modules) {
  switch (role) {
    case WeightRole::expert:
      return true;
    case WeightRole::shared_expert:
    case WeightRole::mlp:
      return modules != ModuleSet::experts;
    case WeightRole::attention:
    case WeightRole::indexer:
      return modules == ModuleSet::all;
    case WeightRole::embedding:
    case WeightRole::head:
    case WeightRole::norm:
    case WeightRole::index_weights:
    case WeightRole::router:
      return false;
  }
  return false;
}

// Which tensors of the checkpoint were asked for.
class AskedSource : public TensorSource {
 public:
  explicit AskedSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  const Tensor* find(std::string_view name) const override {
    const CheckpointTensor* entry = checkpoint_.find_entry(name);
    if (entry == nullptr) return nullptr;
    asked.push_back(entry);
    return &entry->tensor;
  }
  std::string locate(std::string_view name) const override { return checkpoint_.locate(name); }
  mutable std::vector<const CheckpointTensor*> asked;

 private:
  const Checkpoint& checkpoint_;
};

// The key of the matrices that share a scale with this module.
std::string group_key(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  const std::string_view last = std::string_view(module).substr(dot + 1);
  for (std::size_t set = 0; set < std::size(kFused); ++set) {
    if (std::find(std::begin(kFused[set]), std::end(kFused[set]), last) != std::end(kFused[set]))
      return fmt::format("{}#{}", module.substr(0, dot), set);
  }
  return module;
}

// A module's name from that of one of its tensors: without the last part.
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

bool is_plain(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

class Planner {
 public:
  Planner(const Model& model, const QuantiseOptions& options) : model_(model) { plan_.options = options; }

  Result<QuantisePlan> plan() {
    TRY(choose_matrices());
    add_units();
    note_copied_parts();
    note_choices();
    split_into_shards();
    if (plan_.quantised.empty()) {
      return Error{fmt::format("{}: no matrix of this model can be quantised to {} with --modules {}", model_.checkpoint->folder().string(),
                               quantise_name(plan_.options.format), module_set_name(plan_.options.modules)),
                   "choose other modules or another format"};
    }
    std::sort(plan_.quantised.begin(), plan_.quantised.end());
    std::sort(plan_.unquantised.begin(), plan_.unquantised.end());
    plan_.unquantised.erase(std::unique(plan_.unquantised.begin(), plan_.unquantised.end()), plan_.unquantised.end());
    return std::move(plan_);
  }

 private:
  struct Chosen {
    OutputMatrix matrix;
    std::size_t unit = 0;
  };

  // Every matrix of the family's rules: what becomes of it, and which tensors of the source it consists of.
  Status choose_matrices() {
    Status status;
    for_each_rule(*model_.family, model_.config, [&](const WeightRule& rule) {
      if (rule.matrix == nullptr) return;
      const Shape shape = rule.shape(model_.config);
      for_each_place(rule, model_.config, [&](WeightPlace place) {
        if (status) status = choose(rule.role, published_name(*model_.family, rule, place), shape);
      });
    });
    return status;
  }

  Status choose(WeightRole role, std::string name, const Shape& shape) {
    AskedSource asked(*model_.checkpoint);
    const FusedExperts source(asked);
    const std::string& module = plan_.names.emplace_back(std::move(name));
    Weight weight = TRY(resolve_weight({source, module, shape[0], shape[1], plan_.owners}));
    weight.name = module;
    const FormatInfo& target = info(plan_.options.format);
    const bool selected = is_selected(role, plan_.options.modules);
    const bool fits = shape[1] % target.cols_multiple == 0;
    if (selected && !fits) misfits_.push_back(module);
    if (selected && fits) {
      add_matrix(weight, target.format, group_key(module), asked.asked);
      if (is_quantised(weight.format)) ++requantised_[weight.format];
      plan_.quantised.push_back(module);
      return {};
    }
    plan_.unquantised.push_back(module);
    if (!is_quantised(weight.format)) return {};  // its tensors are copied
    add_matrix(weight, QuantFormat::bf16, module, asked.asked);
    ++expanded_[weight.format];
    return {};
  }

  void add_matrix(const Weight& weight, QuantFormat format, const std::string& key, const std::vector<const CheckpointTensor*>& asked) {
    const auto [found, is_new] = unit_of_group_.emplace(key, pending_.size());
    if (is_new) pending_.emplace_back();
    pending_[found->second].matrices.push_back({.source = weight,
                                                .format = format,
                                                .group = found->second,
                                                .parts = packed_parts(format, std::string(weight.name), weight.rows, weight.cols)});
    for (const CheckpointTensor* tensor : asked) consumers_[tensor].insert(found->second);
  }

  // In the order of the source's files, so that it is read from front to back. A unit comes where the first of its tensors lies.
  void add_units() {
    std::vector<bool> added(pending_.size());
    for (const SafetensorsFile& file : model_.checkpoint->files()) {
      for (const TensorEntry& entry : file.tensors()) {
        const CheckpointTensor* tensor = model_.checkpoint->find_entry(entry.name);
        plan_.source_bytes += tensor->tensor.bytes();
        const auto consumers = consumers_.find(tensor);
        if (consumers == consumers_.end()) {
          plan_.units.push_back(
              {.copied = tensor, .copy = {.name = tensor->name, .dtype = tensor->tensor.dtype, .shape = tensor->tensor.shape}});
          copied_.push_back(tensor);
          continue;
        }
        for (const std::size_t unit : consumers->second) {
          if (!added[unit]) plan_.units.push_back(std::move(pending_[unit]));
          added[unit] = true;
        }
      }
    }
  }

  // Modules that no rule knows: MTP layers and skipped parts. Whatever they are, they stay so.
  void note_copied_parts() {
    std::vector<std::string> prefixes = mtp_prefixes(*model_.family, model_.config, *model_.checkpoint);
    const std::size_t mtp = prefixes.size();
    prefixes.insert(prefixes.end(), model_.family->skipped.begin(), model_.family->skipped.end());
    bool quantised_mtp = false;
    std::int64_t mtp_bytes = 0;
    for (const CheckpointTensor* tensor : copied_) {
      const auto prefix =
          std::find_if(prefixes.begin(), prefixes.end(), [&](const std::string& start) { return tensor->name.starts_with(start); });
      if (prefix == prefixes.end()) continue;
      const bool is_mtp = static_cast<std::size_t>(prefix - prefixes.begin()) < mtp;
      if (is_mtp) mtp_bytes += tensor->tensor.bytes();
      if (is_mtp && !is_plain(tensor->tensor.dtype)) quantised_mtp = true;
      if (tensor->tensor.shape.rank() == 2) plan_.unquantised.push_back(module_of(tensor->name));
    }
    if (mtp_bytes > 0)
      plan_.notes.push_back(fmt::format("the MTP layer ({:.1f} MB) is copied as it is", static_cast<double>(mtp_bytes) / 1e6));
    if (quantised_mtp)
      plan_.notes.push_back(
          "the MTP layer is quantised in the source and stays in that format, which the new metadata cannot say: other "
          "servers may not load it");
  }

  void note_choices() {
    for (const auto& [format, count] : requantised_)
      plan_.notes.push_back(
          fmt::format("{} of the matrices to quantise are {} in the source: quantising twice loses more than quantising the "
                      "original once",
                      count, info(format).name));
    for (const auto& [format, count] : expanded_)
      plan_.notes.push_back(fmt::format("{} matrices that are not to be quantised are {} in the source: they are expanded to BF16", count,
                                        info(format).name));
    if (!misfits_.empty())
      plan_.notes.push_back(fmt::format("{} matrices stay unquantised, because {} needs a multiple of {} columns (the first: {})",
                                        misfits_.size(), info(plan_.options.format).name, info(plan_.options.format).cols_multiple,
                                        misfits_.front()));
    if (plan_.options.format == QuantFormat::nvfp4)
      plan_.notes.push_back("no calibration is done: every input_scale is 1.0, which servers that quantise activations to FP4 multiply by");
  }

  template <class Visit>
  static void for_each_part(OutputUnit& unit, Visit&& visit) {
    if (unit.copied != nullptr) visit(unit.copy);
    for (OutputMatrix& matrix : unit.matrices) {
      for (OutputPart& part : matrix.parts) visit(part);
    }
  }

  void split_into_shards() {
    std::int64_t filled = 0;
    for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
      std::int64_t bytes = 0;
      for_each_part(plan_.units[unit], [&](const OutputPart& part) { bytes += part.bytes(); });
      if (plan_.shards.empty() || (filled > 0 && filled + bytes > plan_.options.shard_bytes)) {
        plan_.shards.push_back({.file = {}, .first_unit = unit});
        filled = 0;
      }
      filled += bytes;
      ++plan_.shards.back().units;
      plan_.output_bytes += bytes;
    }
    for (std::size_t i = 0; i < plan_.shards.size(); ++i) {
      plan_.shards[i].file =
          plan_.shards.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan_.shards.size());
      place(plan_.shards[i]);
    }
  }

  // The header, and from its length the offset of every part.
  void place(OutputShard& shard) {
    const std::span units = std::span(plan_.units).subspan(shard.first_unit, shard.units);
    std::vector<NamedTensor> tensors;
    for (OutputUnit& unit : units)
      for_each_part(unit, [&](const OutputPart& part) { tensors.push_back({part.name, {.dtype = part.dtype, .shape = part.shape}}); });
    shard.header = safetensors_header(tensors, {{"format", "pt"}});
    shard.bytes = static_cast<std::int64_t>(shard.header.size());
    for (OutputUnit& unit : units) {
      for_each_part(unit, [&](OutputPart& part) {
        part.offset = shard.bytes;
        shard.bytes += part.bytes();
      });
    }
  }

  const Model& model_;
  QuantisePlan plan_;
  std::vector<OutputUnit> pending_;
  std::map<std::string, std::size_t> unit_of_group_;
  std::unordered_map<const CheckpointTensor*, std::set<std::size_t>> consumers_;
  std::vector<const CheckpointTensor*> copied_;
  std::map<QuantFormat, std::int64_t> requantised_;
  std::map<QuantFormat, std::int64_t> expanded_;
  std::vector<std::string> misfits_;
};

}  // namespace

Result<QuantisePlan> plan_quantisation(const Model& model, const QuantiseOptions& options) { return Planner(model, options).plan(); }

std::span<const QuantiseFormatName> quantise_formats() { return kFormats; }

std::string_view quantise_name(QuantFormat format) {
  for (const QuantiseFormatName& entry : kFormats) {
    if (entry.format == format) return entry.name;
  }
  CHECK(false, "a format that quantising does not offer");
  return {};
}

std::string_view module_set_name(ModuleSet modules) {
  return modules == ModuleSet::experts ? "experts" : modules == ModuleSet::mlp ? "mlp" : "all";
}

std::vector<OutputPart> packed_parts(QuantFormat format, const std::string& module, std::int64_t rows, std::int64_t cols) {
  const auto part = [&](std::string_view suffix, DType dtype, const Shape& shape) {
    return OutputPart{.name = module + std::string(suffix), .dtype = dtype, .shape = shape};
  };
  const auto blocks = [](std::int64_t count) { return (count + kFp8Block - 1) / kFp8Block; };
  switch (format) {
    case QuantFormat::nvfp4:
      return {part(".weight", DType::u8, {rows, cols / 2}), part(".weight_scale", DType::f8_e4m3, {rows, cols / kNvfp4Block}),
              part(".weight_scale_2", DType::f32, {}), part(".input_scale", DType::f32, {})};
    case QuantFormat::mxfp4:
      return {part(".weight", DType::u8, {rows, cols / 2}), part(".weight_scale", DType::u8, {rows, cols / kMxBlock})};
    case QuantFormat::int4_g32:
      return {part(".weight_packed", DType::i32, {rows, cols / 8}), part(".weight_scale", DType::bf16, {rows, cols / kInt4Group}),
              part(".weight_shape", DType::i64, {2})};
    case QuantFormat::fp8_block:
      return {part(".weight", DType::f8_e4m3, {rows, cols}), part(".weight_scale_inv", DType::f32, {blocks(rows), blocks(cols)})};
    case QuantFormat::fp8_channel:
      return {part(".weight", DType::f8_e4m3, {rows, cols}), part(".weight_scale", DType::f32, {rows, 1})};
    case QuantFormat::bf16:
      return {part(".weight", DType::bf16, {rows, cols})};
    case QuantFormat::f32:
    case QuantFormat::f16:
    case QuantFormat::mxfp8:
      break;
  }
  CHECK(false, "a format that quantising does not offer");
  return {};
}

}  // namespace reckoner
