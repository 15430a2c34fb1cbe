// From what the user calls a model to the folder that holds it.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace reckoner {

// `model` is a folder, or a repository name "org/name" that was downloaded into the Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub,
// ~/.cache/huggingface/hub, in this order). Of a cached repository, the snapshot that refs/main names is taken, or the only one.
// Errors say where was looked and how to download the model.
Result<std::filesystem::path> resolve_model(std::string_view model);

}  // namespace reckoner
