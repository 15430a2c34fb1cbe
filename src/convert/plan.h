// What quantising a checkpoint will write, down to the last byte's place, before anything is written.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "model/loader.h"
#include "quant/format.h"

namespace reckoner {

// experts: routed ones; mlp: with shared experts and the MLPs of dense layers; all: with the projections of attention and indexer.
enum class ModuleSet : std::uint8_t { experts, mlp, all };

struct QuantiseOptions {
  QuantFormat format = QuantFormat::nvfp4;
  ModuleSet modules = ModuleSet::experts;
  std::int64_t shard_bytes = 5'000'000'000;  // about so many in a file
};

// A name that users and files give: "nvfp4", "fp8-block", ...; "experts", ...
struct QuantiseFormatName {
  std::string_view name;
  QuantFormat format;
};
std::span<const QuantiseFormatName> quantise_formats();
std::string_view quantise_name(QuantFormat format);
std::string_view module_set_name(ModuleSet modules);

// One tensor of the output.
struct OutputPart {
  std::string name;
  DType dtype = DType::f32;
  Shape shape = {};
  std::int64_t offset = 0;  // of its first byte in its file
  std::int64_t bytes() const { return shape.elements() * size_bytes(dtype); }
};

// A matrix that is packed, or expanded to BF16 because the source has it quantised and it is not to be.
struct OutputMatrix {
  Weight source;          // its name is the module's
  QuantFormat format;     // of the output
  std::size_t group = 0;  // matrices of one group share a tensor-wide scale
  std::vector<OutputPart> parts = {};
};

// What is written together: matrices that share a scale, or one tensor that is copied.
struct OutputUnit {
  std::vector<OutputMatrix> matrices = {};
  const CheckpointTensor* copied = nullptr;
  OutputPart copy = {};
};

struct OutputShard {
  std::string file;
  std::size_t first_unit = 0;
  std::size_t units = 0;
  std::string header = {};
  std::int64_t bytes = 0;  // of the whole file
};

struct QuantisePlan {
  QuantiseOptions options;
  std::vector<OutputUnit> units;  // in the order of the files
  std::vector<OutputShard> shards;
  std::vector<std::string> quantised;    // modules of the output that are quantised, sorted
  std::vector<std::string> unquantised;  // the other modules that have a matrix, those of parts that are only copied included, sorted
  std::vector<std::string> notes;        // what a user should know
  std::int64_t source_bytes = 0;
  std::int64_t output_bytes = 0;
  std::vector<Buffer> owners;     // of converted scales of the source
  std::deque<std::string> names;  // of the source's matrices
};

// `model` must outlive the plan. Errors: nothing that could be quantised; a tensor that the source does not have after all.
Result<QuantisePlan> plan_quantisation(const Model& model, const QuantiseOptions& options);

// The tensors of a matrix [rows, cols] in a format, as the published layout has them.
std::vector<OutputPart> packed_parts(QuantFormat format, const std::string& module, std::int64_t rows, std::int64_t cols);

}  // namespace reckoner
