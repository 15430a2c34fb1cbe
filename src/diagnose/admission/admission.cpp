#include "diagnose/admission/admission.h"

#include <fmt/format.h>

#include <algorithm>

namespace reckoner::admission {
namespace {

bool is_reference(const Item& item) { return item.kernel == item.op + ".reference"; }

bool is_known(const Admission& admission, const Item& item) {
  return std::any_of(admission.outcomes.begin(), admission.outcomes.end(), [&](const Outcome& outcome) { return outcome.item == item; });
}

// Of `chosen` those that nothing is known of; what passed before is noted.
std::vector<Item> untried(const std::vector<Item>& chosen, const Shapes& shapes, const Passed& passed, Admission& admission) {
  std::vector<Item> rest;
  for (const Item& item : chosen) {
    if (is_reference(item) || is_known(admission, item)) continue;
    if (!passed.has(item, shapes)) {
      rest.push_back(item);
      continue;
    }
    admission.outcomes.push_back({.item = item, .passed = true, .worst = passed.worst(item, shapes)});
    ++admission.remembered;
  }
  return rest;
}

// Whether anything was refused.
bool take_note(const std::vector<Outcome>& outcomes, const Shapes& shapes, Passed& passed, Admission& admission) {
  const std::size_t before = admission.refusals.size();
  for (const Outcome& outcome : outcomes) {
    passed.add(outcome, shapes);
    admission.outcomes.push_back(outcome);
    if (!outcome.passed) admission.refusals.push_back({outcome.item.op, outcome.item.kernel, outcome.item.key, outcome.reason});
  }
  return admission.refusals.size() > before;
}

}  // namespace

std::vector<Item> items_of(const std::vector<Ops::Call>& calls) {
  std::vector<Item> items;
  for (const Ops::Call& call : calls) {
    Item item{.op = std::string(call.op), .kernel = std::string(call.kernel), .key = call.key};
    if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(std::move(item));
  }
  return items;
}

std::vector<std::string> Admission::sentences() const {
  std::vector<std::string> all;
  for (const Outcome& outcome : outcomes) {
    if (outcome.passed) continue;
    const auto next = std::find_if(serving.begin(), serving.end(), [&](const Item& item) {
      return item.op == outcome.item.op && item.key.index() == outcome.item.key.index();
    });
    all.push_back(fmt::format("{} refused: {}; {} serves", to_text(outcome.item), outcome.reason,
                              next == serving.end() ? "nothing else" : next->kernel));
  }
  return all;
}

Result<Admission> admit_chosen(const Choose& choose, const Job& job, const ChildOptions& child, Passed& passed) {
  Admission admission;
  for (bool refused = true; refused;) {
    admission.serving = TRY(choose(admission.refusals));
    Job next = job;
    next.items = untried(admission.serving, job.shapes, passed, admission);
    if (next.items.empty()) break;
    const std::vector<Outcome> outcomes = TRY(admit_in_child(next, child));
    refused = take_note(outcomes, job.shapes, passed, admission);
  }
  return admission;
}

Shapes shapes_of(const ModelConfig& c, const KvLayout& layout) {
  Shapes shapes;
  const auto set = [](std::int64_t& shape, std::int64_t value) {
    if (value > 0) shape = value;
  };
  set(shapes.hidden, c.hidden_size);
  set(shapes.heads, c.num_attention_heads);
  set(shapes.latent, c.kv_lora_rank);
  set(shapes.rope, c.rotary_dim());
  set(shapes.nope, c.qk_nope_head_dim);
  set(shapes.value, c.v_head_dim);
  set(shapes.index_heads, c.index_n_heads);
  set(shapes.index_dim, c.index_head_dim);
  set(shapes.index_top_k, c.index_topk);
  set(shapes.kv_heads, c.num_key_value_heads);
  set(shapes.head_dim, c.head_dim);
  set(shapes.experts, c.n_routed_experts);
  set(shapes.top_k, c.num_experts_per_tok);
  set(shapes.groups, c.n_group);
  set(shapes.top_groups, c.topk_group);
  shapes.cache = (layout.latent.empty() ? layout.keys : layout.latent).front().dtype;
  shapes.widths.clear();
  for (const std::int64_t width : {c.hidden_size, c.intermediate_size, c.moe_intermediate_size, c.q_lora_rank, c.kv_lora_rank,
                                   c.num_attention_heads * (c.is_mla() ? c.v_head_dim : c.head_dim)}) {
    if (width > 0 && std::find(shapes.widths.begin(), shapes.widths.end(), width) == shapes.widths.end()) shapes.widths.push_back(width);
  }
  return shapes;
}

}  // namespace reckoner::admission
