#include "cli/inventory.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/memory.h"
#include "kernels/cpu/catalogue.h"
#include "model/forward.h"
#include "quant/format.h"

namespace reckoner {
namespace {

void add_matrix(WeightGroup& group, const Weight& weight) {
  ++group.count;
  ++group.formats[std::string(info(weight.format).name)];
  group.shape = {weight.rows, weight.cols};
  group.bytes += weight_bytes(weight);
  group.elements += weight.rows * weight.cols;
}

void add_tensor(WeightGroup& group, const Tensor& tensor) {
  ++group.count;
  ++group.formats[std::string(name(tensor.dtype))];
  group.shape = tensor.shape;
  group.bytes += tensor.bytes();
  group.elements += tensor.shape.elements();
}

}  // namespace

std::int64_t Inventory::elements() const {
  std::int64_t sum = 0;
  for (const WeightGroup& group : groups) sum += group.elements;
  return sum;
}

std::int64_t Inventory::bytes() const {
  std::int64_t sum = 0;
  for (const WeightGroup& group : groups) sum += group.bytes;
  return sum;
}

Inventory take_inventory(Model& model) {
  Inventory inventory;
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    WeightGroup group{.name = std::string(model.family->prefix) + std::string(rule.name)};
    for_each_place(rule, model.config, [&](WeightPlace place) {
      if (rule.matrix != nullptr) {
        add_matrix(group, rule.matrix(model.weights, place));
      } else if (const Tensor* tensor = model.checkpoint->find(published_name(*model.family, rule, place))) {
        add_tensor(group, *tensor);  // as published; the model holds floats
      }
    });
    if (group.count > 0) inventory.groups.push_back(std::move(group));
  });
  for (const std::string& prefix : mtp_prefixes(*model.family, model.config, *model.checkpoint)) {
    for (const CheckpointTensor& entry : model.checkpoint->tensors()) {
      if (entry.name.starts_with(prefix)) add_tensor(inventory.not_loaded, entry.tensor);
    }
  }
  inventory.not_loaded.name = fmt::format("model.layers.{}.* (MTP)", model.config.num_hidden_layers);
  return inventory;
}

Result<MemoryNeeds> memory_needs(const Session& session, const LimitOptions& limits) {
  const Model& model = *session.model;
  MemoryNeeds needs{.weight_bytes = model.weight_bytes,
                    .cache_bytes_per_token = kv_layout(model.config, session.precision, session.cache_type).bytes_per_token(),
                    .free_bytes = free_memory_bytes()};
  const std::int64_t longest = model.config.max_position_embeddings;
  // An inspection may ask for more than this machine holds, but not for more than the model was made for.
  const ContextChoice context = TRY(choose_context(limits.context, {.longest = longest,
                                                                    .bytes_per_token = needs.cache_bytes_per_token,
                                                                    .weight_bytes = needs.weight_bytes,
                                                                    .free_bytes = limits.context > 0 ? 0 : needs.free_bytes}));
  needs.context = context.tokens;
  needs.context_why = context.why;
  needs.chunk = std::min(limits.chunk, context.tokens);
  needs.cache_bytes = (context.tokens + kPageTokens - 1) / kPageTokens * kPageTokens * needs.cache_bytes_per_token;
  const StepRunner runner(model, cpu_catalogue(), session.device, *session.pool, session.precision,
                          {.max_tokens = std::max<std::int64_t>(2, needs.chunk),
                           .max_samples = 1,
                           .max_context = context.tokens,
                           .cache_type = session.cache_type});
  needs.workspace_bytes = runner.planned_bytes();
  return needs;
}

}  // namespace reckoner
