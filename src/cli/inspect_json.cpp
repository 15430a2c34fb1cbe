#include <algorithm>
#include <boost/json.hpp>

#include "cli/inspect_report.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::array shape_json(const Shape& shape) {
  json::array dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.emplace_back(shape[axis]);
  return dims;
}

json::object group_json(const WeightGroup& group) {
  json::object formats;
  for (const auto& [format, count] : group.formats) formats[format] = count;
  return {{"name", group.name},   {"count", group.count},      {"formats", std::move(formats)}, {"shape", shape_json(group.shape)},
          {"bytes", group.bytes}, {"elements", group.elements}};
}

json::object config_json(const ModelConfig& c) {
  return {{"model_type", c.model_type},
          {"layers", c.num_hidden_layers},
          {"dense_layers", std::count(c.mlp_kinds.begin(), c.mlp_kinds.end(), MlpKind::dense)},
          {"hidden_size", c.hidden_size},
          {"vocab_size", c.vocab_size},
          {"attention_heads", c.num_attention_heads},
          {"kv_lora_rank", c.kv_lora_rank},
          {"qk_nope_head_dim", c.qk_nope_head_dim},
          {"qk_rope_head_dim", c.qk_rope_head_dim},
          {"v_head_dim", c.v_head_dim},
          {"q_lora_rank", c.q_lora_rank},
          {"index_n_heads", c.index_n_heads},
          {"index_head_dim", c.index_head_dim},
          {"index_topk", c.index_topk},
          {"routed_experts", c.n_routed_experts},
          {"experts_per_token", c.num_experts_per_tok},
          {"shared_experts", c.n_shared_experts},
          {"moe_intermediate_size", c.moe_intermediate_size},
          {"intermediate_size", c.intermediate_size},
          {"max_position_embeddings", c.max_position_embeddings}};
}

json::array settings_json(const std::vector<Setting>& settings) {
  json::array list;
  for (const Setting& s : settings)
    list.push_back(json::object{{"name", s.name}, {"value", s.value}, {"source", s.source}, {"note", s.note}});
  return list;
}

json::object memory_json(const Session& session, const MemoryNeeds& memory) {
  return {{"context", memory.context},
          {"precision", session.precision_name},
          {"weights_bytes", memory.weight_bytes},
          {"cache_bytes_per_token", memory.cache_bytes_per_token},
          {"cache_bytes", memory.cache_bytes},
          {"workspace_bytes", memory.workspace_bytes},
          {"total_bytes", memory.total()},
          {"free_bytes", memory.free_bytes}};
}

json::array tensors_json(const Checkpoint& checkpoint) {
  json::array list;
  for (const CheckpointTensor& entry : checkpoint.tensors()) {
    list.push_back(json::object{{"name", entry.name},
                                {"dtype", name(entry.tensor.dtype)},
                                {"shape", shape_json(entry.tensor.shape)},
                                {"bytes", entry.tensor.bytes()},
                                {"file", entry.file->path().filename().string()}});
  }
  return list;
}

}  // namespace

std::string inspect_json(const Session& session, const Inventory& inventory, const MemoryNeeds& memory, ListTensors list) {
  const Model& model = *session.model;
  json::array groups;
  for (const WeightGroup& group : inventory.groups) groups.push_back(group_json(group));
  json::object object{{"model", session.name},
                      {"folder", session.folder.string()},
                      {"config", config_json(model.config)},
                      {"weights", std::move(groups)},
                      {"not_loaded", inventory.not_loaded.count > 0 ? json::value(group_json(inventory.not_loaded)) : json::value()},
                      {"parameters", inventory.elements()},
                      {"bytes", inventory.bytes()},
                      {"bits_per_parameter", 8 * static_cast<double>(inventory.bytes()) / static_cast<double>(inventory.elements())},
                      {"memory", memory_json(session, memory)},
                      {"settings", settings_json(joined(model.config.settings, model.quant.settings))},
                      {"ignored", settings_json(model.config.ignored)},
                      {"unread_fields", json::array(model.config.unread_fields.begin(), model.config.unread_fields.end())},
                      {"notes", json::array(model.notes.begin(), model.notes.end())}};
  if (list == ListTensors::yes) object["tensors"] = tensors_json(*model.checkpoint);
  return json::serialize(object) + "\n";
}

}  // namespace reckoner
