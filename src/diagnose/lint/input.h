// LintInput: a model folder as the checks see it. Every part may be missing or broken; the others are there all the same.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/threads.h"
#include "diagnose/lint/lint.h"
#include "formats/model_config.h"
#include "formats/quant_metadata.h"
#include "formats/safetensors.h"
#include "model/family.h"
#include "text/tokenizer.h"

namespace reckoner::lint {

// A JSON file of the folder.
struct LintDocument {
  std::string name;
  bool present = false;
  std::optional<JsonDocument> json = {};
  std::string error = {};  // why `json` is empty although the file is there
};

// A safetensors file: there, or named by the index.
struct LintFile {
  std::string name;
  std::filesystem::path path;
  bool present = false;
  bool served = false;  // Reckoner reads weights from it
  std::int64_t bytes = 0;
  std::optional<SafetensorsHeader> header = {};  // its content is in LintInput::tensors
  std::string error = {};                        // why there is no header
};

struct LintTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::int64_t bytes;
  std::int64_t offset;   // in the file
  const LintFile* file;  // owned by the LintInput
  bool whole;            // its bytes are within the file
  bool served;           // of a file that Reckoner reads, and the first one of its name
};

// How a module's tensors say that it is stored.
enum class Storage : std::uint8_t { none, plain, nvfp4, nvfp4_packed, mxfp4, int4, fp8_block, fp8_channel, fp8_tensor, mxfp8, unknown };
std::string_view storage_name(Storage storage);
bool is_quantised(Storage storage);

// The tensors of a matrix and of its scales: "model.layers.3.mlp.experts.7.up_proj".
struct LintModule {
  std::string name;
  std::optional<std::int64_t> layer = {};
  std::optional<std::int64_t> expert = {};
  std::map<std::string_view, const LintTensor*> parts = {};  // by suffix: ".weight", ".weight_scale"
  Storage storage = Storage::none;

  const LintTensor* part(std::string_view suffix) const;
  const LintTensor* data() const;          // ".weight" or ".weight_packed"
  const LintTensor* block_scales() const;  // a scale a block, group or row; null when there are none
  std::string_view leaf() const;           // "up_proj"
  std::string_view parent() const;         // "model.layers.3.mlp.experts.7"
};

struct LintInput {
  std::filesystem::path folder;
  LintDocument config, generation_config, hf_quant_config, index, tokenizer_config;

  std::vector<std::unique_ptr<LintFile>> files;   // sorted by name
  std::vector<LintTensor> tensors;                // sorted by name; of several with one name, the one that counts first
  std::vector<LintModule> modules;                // of served tensors, sorted by name
  std::map<std::string, std::string> weight_map;  // of the index: tensor -> file
  std::optional<std::int64_t> total_size = {};    // of the index

  std::optional<ModelConfig> model = {};
  std::string model_error = {};    // why there is no `model`
  const Family* family = nullptr;  // null when the config is broken or of another family
  std::string family_error = {};
  QuantMetadata quant = {};  // what counts
  std::string quant_error = {};
  std::optional<Tokenizer> tokenizer = {};  // not for LintDepth::load
  std::string tokenizer_error = {};
  bool has_tokenizer_files = false;

  std::map<const LintTensor*, float> scalars = {};  // tensor-wide scales

  // Whether the tensors of every file are known: what is not among them is missing.
  bool complete() const;
  // The tensor of this name that counts; null when there is none.
  const LintTensor* find(std::string_view name) const;
  const LintModule* find_module(std::string_view name) const;
  std::optional<float> scalar(const LintTensor* tensor) const;
  // The object with the text model's fields: config.json's root, or its text_config. Nothing when there is no such object.
  std::optional<JsonNode> text_config() const;
};

// Reads metadata and headers.
LintInput read_input(const std::filesystem::path& folder, const LintOptions& options);

// "model.safetensors: tensor 'x'"
std::string where(const LintTensor& tensor);
// An error about a file, without the file's name at its start.
std::string own_words(const LintInput& input, const std::string& file, const std::string& error);
// The numbers in "model.layers.3.mlp.experts.7.up_proj".
std::optional<std::int64_t> number_after(std::string_view name, std::string_view part);

}  // namespace reckoner::lint
