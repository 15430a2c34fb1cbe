// A model checked against itself: the same weights expanded to float, run by plain kernels, must give the same logits. What is proved is
// that the kernels of a format compute what its bytes mean, whatever checkpoint they come from.
#pragma once

#include <memory>
#include <vector>

#include "base/threads.h"
#include "diagnose/verify/verify.h"

namespace reckoner {

// Bytes that the matrices of a model take as F32.
std::int64_t dequantised_bytes(const Model& model);

// The same model with every matrix as F32 in memory. What is F32 already stays where `model` has it, which must live longer.
Result<std::unique_ptr<Model>> dequantised(const Model& model, ThreadPool& pool);

// Random ids, the same for the same seed; enough that sparse attention has to choose.
std::vector<std::int32_t> random_tokens(const ModelConfig& config, std::uint64_t seed);

// What the runner computes for these tokens, in one case named `name`: hidden states and logits of the last positions, and the most
// probable token at each. The runner's limits must hold them and sample every row of a step.
ReferenceCase record_reference(StepRunner& runner, std::string name, std::vector<std::int32_t> input_ids);

}  // namespace reckoner
