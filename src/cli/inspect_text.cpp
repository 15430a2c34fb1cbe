#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/inspect_report.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

std::string bytes(std::int64_t count) { return bytes_text(static_cast<double>(count)); }

std::string row(std::string_view name, const std::string& value) { return fmt::format("  {:<16}{}\n", name, value); }

template <class Kind>
std::int64_t count_of(const std::vector<Kind>& kinds, Kind kind) {
  return std::count(kinds.begin(), kinds.end(), kind);
}

std::string shape_text(const ModelConfig& c) {
  std::string text = "shape\n";
  text += row("layers", fmt::format("{}: {} dense, {} with experts", c.num_hidden_layers, count_of(c.mlp_kinds, MlpKind::dense),
                                    count_of(c.mlp_kinds, MlpKind::sparse)));
  text += row("hidden size", std::to_string(c.hidden_size));
  text += row("vocabulary", fmt::format("{} tokens", c.vocab_size));
  if (c.is_mla()) {
    text += row("attention", fmt::format("MLA: {} heads of {} + {} (rope), values of {}; latent {}, query latent {}", c.num_attention_heads,
                                         c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.kv_lora_rank, c.q_lora_rank));
  } else {
    text +=
        row("attention", fmt::format("{} heads, {} for keys and values, of {}", c.num_attention_heads, c.num_key_value_heads, c.head_dim));
  }
  if (c.is_sparse_attention()) {
    text += row("indexer", fmt::format("{} heads of {} select {} tokens; {} of {} layers have their own", c.index_n_heads, c.index_head_dim,
                                       c.index_topk, count_of(c.indexer_kinds, IndexerKind::full), c.num_hidden_layers));
  }
  if (c.intermediate_size > 0) text += row("dense MLP", fmt::format("inner width {}", c.intermediate_size));
  if (c.is_moe()) {
    text += row("experts", fmt::format("{} a layer, {} a token, {} shared; inner width {}", c.n_routed_experts, c.num_experts_per_tok,
                                       c.n_shared_experts, c.moe_intermediate_size));
  }
  return text + row("longest context", fmt::format("{} tokens", c.max_position_embeddings));
}

// "BF16", or "3 BF16, 1 NVFP4" where they differ.
std::string formats_text(const std::map<std::string, std::int64_t>& formats) {
  if (formats.size() == 1) return formats.begin()->first;
  std::vector<std::string> parts;
  for (const auto& [format, count] : formats) parts.push_back(fmt::format("{} {}", count, format));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string weights_text(const Inventory& inventory) {
  std::size_t name_width = 0;
  std::size_t format_width = 6;
  for (const WeightGroup& group : inventory.groups) {
    name_width = std::max(name_width, group.name.size());
    format_width = std::max(format_width, formats_text(group.formats).size());
  }
  std::string text =
      fmt::format("weights\n  {:<{}}  {:>6}  {:<{}}  {:<14} {:>8}\n", "", name_width, "count", "format", format_width, "shape", "bytes");
  for (const WeightGroup& group : inventory.groups) {
    text += fmt::format("  {:<{}}  {:>6}  {:<{}}  {:<14} {:>8}\n", group.name, name_width, group.count, formats_text(group.formats),
                        format_width, group.shape.to_string(), bytes(group.bytes));
  }
  const double bits = 8 * static_cast<double>(inventory.bytes()) / static_cast<double>(inventory.elements());
  text += fmt::format("  in all: {} parameters in {}, {:.2f} bits a parameter\n", count_text(static_cast<double>(inventory.elements())),
                      bytes(inventory.bytes()), bits);
  const WeightGroup& rest = inventory.not_loaded;
  if (rest.count == 0) return text;
  return text +
         fmt::format("  not loaded: {}, {} tensors ({}), {}\n", rest.name, rest.count, formats_text(rest.formats), bytes(rest.bytes));
}

std::string memory_text(const Session& session, const MemoryNeeds& memory) {
  std::string text = fmt::format("memory at a context of {} tokens ({}), {}\n", memory.context, memory.context_why, session.precision_name);
  text += row("weights", bytes(memory.weight_bytes));
  text += row("cache", fmt::format("{}, {} a token", bytes(memory.cache_bytes), bytes(memory.cache_bytes_per_token)));
  text += row("workspace", fmt::format("{}, for steps of {} tokens on {} threads with {} kernels", bytes(memory.workspace_bytes),
                                       memory.chunk, session.pool->threads(), session.kernels));
  std::string total = bytes(memory.total());
  if (memory.free_bytes > 0) {
    total += fmt::format("; this machine has {} free{}", bytes(memory.free_bytes),
                         memory.total() > memory.free_bytes ? ": it does not fit" : "");
  }
  return text + row("in all", total);
}

std::string tensors_text(const Checkpoint& checkpoint) {
  std::size_t width = 0;
  for (const CheckpointTensor& entry : checkpoint.tensors()) width = std::max(width, entry.name.size());
  std::string text = "tensors\n";
  for (const CheckpointTensor& entry : checkpoint.tensors()) {
    text += fmt::format("  {:<{}}  {:<8}  {:<14} {:>8}  {}\n", entry.name, width, name(entry.tensor.dtype), entry.tensor.shape.to_string(),
                        bytes(entry.tensor.bytes()), entry.file->path().filename().string());
  }
  return text;
}

std::string notes_text(const Model& model) {
  std::string text;
  for (const std::string& note : model.notes) text += fmt::format("  {}\n", note);
  return text.empty() ? "" : "notes\n" + text;
}

}  // namespace

std::string inspect_text(const Session& session, const Inventory& inventory, const MemoryNeeds& memory, ListTensors list) {
  const Model& model = *session.model;
  std::string text = fmt::format("{}: {} ({})\n\n", session.name, model.config.model_type, fmt::join(model.config.architectures, ", "));
  text += shape_text(model.config) + "\n" + weights_text(inventory) + "\n" + memory_text(session, memory) + "\n";
  text += "what the files say, and what took effect\n" + settings_table(joined(model.config.settings, model.quant.settings));
  if (!model.config.ignored.empty()) text += "\nfields that are not used\n" + settings_table(without_sources(model.config.ignored));
  if (!model.config.unread_fields.empty())
    text += fmt::format("\nfields that Reckoner does not know\n  {}\n", fmt::join(model.config.unread_fields, ", "));
  if (const std::string notes = notes_text(model); !notes.empty()) text += "\n" + notes;
  if (list == ListTensors::yes) text += "\n" + tensors_text(*model.checkpoint);
  return text;
}

}  // namespace reckoner
