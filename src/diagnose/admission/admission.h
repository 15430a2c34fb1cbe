// Admission: a kernel serves only after it has matched its reference on this machine (docs/admission.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/admission/child.h"
#include "diagnose/admission/passed.h"
#include "formats/model_config.h"
#include "model/kv_layout.h"
#include "ops/kernel.h"

namespace reckoner::admission {

// The sizes of a model that cases take.
Shapes shapes_of(const ModelConfig& config, const KvLayout& layout);

// The kernels of a planned step, each once.
std::vector<Item> items_of(const std::vector<Ops::Call>& calls);

struct Admission {
  std::vector<Outcome> outcomes;  // of every kernel that was chosen, refused ones too; not of references
  Refusals refusals;
  std::int64_t remembered = 0;  // of the outcomes, from an earlier start
  std::vector<Item> serving;    // that are left, references too

  // "linear.nvfp4.few_rows refused: error 3.1e-02 where 4.0e-03 is allowed, y row 3 (...); linear.generic serves"
  std::vector<std::string> sentences() const;
};

// Which kernels are chosen when those are refused. Error: something is served by none.
using Choose = std::function<Result<std::vector<Item>>(const Refusals& refusals)>;

// Tries what is chosen and not known to have passed, until nothing that is chosen is refused. `job` says where; its items do not count.
Result<Admission> admit_chosen(const Choose& choose, const Job& job, const ChildOptions& child, Passed& passed);

}  // namespace reckoner::admission
