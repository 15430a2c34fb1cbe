// A case: what is done to a whole model, and every word that a user is then told.
#pragma once

#include <ostream>
#include <span>

#include "support/model_copy.h"

namespace reckoner::malformed {

struct Case {
  const char* name;  // of the test; what is wrong
  Base base;
  void (*damage)(const ModelCopy& model);
  const char* message;  // a line break, then Error::message() with the folder as DIR
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// One list a topic, each in a file of its name.
std::span<const Case> folder_cases();     // the folder, its shards and their index
std::span<const Case> header_cases();     // safetensors files
std::span<const Case> tensor_cases();     // which tensors there are, their dtypes, shapes and values
std::span<const Case> config_cases();     // config.json, generation_config.json, hf_quant_config.json
std::span<const Case> tokenizer_cases();  // tokenizer.json, tokenizer_config.json, chat templates

}  // namespace reckoner::malformed
