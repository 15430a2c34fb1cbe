#include "formats/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "base/mapped_file.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxReferenceBytes = 4096;  // a commit hash

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Folders that hold "models--org--name", in the order in which they are searched.
std::vector<fs::path> cache_folders() {
  std::vector<fs::path> folders;
  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) folders.emplace_back(hub);
  if (const std::string home = environment("HF_HOME"); !home.empty()) folders.push_back(fs::path(home) / "hub");
  if (const std::string home = environment("HOME"); !home.empty()) folders.push_back(fs::path(home) / ".cache/huggingface/hub");
  return folders;
}

bool is_repository_part(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !part.empty() && part != "." && part != ".." && std::all_of(part.begin(), part.end(), allowed);
}

// "org/name"
bool is_repository(std::string_view model) {
  const std::size_t slash = model.find('/');
  return slash != std::string_view::npos && is_repository_part(model.substr(0, slash)) && is_repository_part(model.substr(slash + 1));
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    if (at->is_directory(unreadable)) names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<fs::path> choose_snapshot(const fs::path& repository, const std::string& download) {
  const fs::path snapshots = repository / "snapshots";
  if (const Result<std::string> reference = read_text_file(repository / "refs/main", kMaxReferenceBytes)) {
    const std::string commit = reference->substr(0, reference->find_last_not_of(" \t\r\n") + 1);
    std::error_code error;
    if (is_repository_part(commit) && fs::is_directory(snapshots / commit, error)) return snapshots / commit;
  }
  const std::vector<std::string> names = folders_in(snapshots);
  if (names.size() == 1) return snapshots / names.front();
  if (names.empty()) return Error{fmt::format("{}: the cache has this model's name but no snapshot of it", repository.string()), download};
  return Error{fmt::format("{}: {} snapshots and no refs/main that says which one to use: {}", snapshots.string(), names.size(),
                           fmt::join(names, ", ")),
               "give the path of one of these folders as the model"};
}

}  // namespace

Result<fs::path> resolve_model(std::string_view model) {
  const fs::path path(model);
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  if (fs::exists(path, error))
    return Error{fmt::format("{}: expected a model folder, found a file", model),
                 "give the folder that holds config.json and the safetensors files"};
  if (!is_repository(model))
    return Error{fmt::format("{}: there is no such folder", model.empty() ? "''" : model),
                 "give a model folder, or a repository name such as zai-org/GLM-5.2-FP8"};
  const std::string download =
      fmt::format("download it with `hf download {0}`, or into a folder with `hf download {0} --local-dir FOLDER`", model);
  std::string name = fmt::format("models--{}", model);
  name.replace(name.find('/'), 1, "--");
  std::vector<std::string> searched;
  for (const fs::path& cache : cache_folders()) {
    if (fs::is_directory(cache / name, error)) return choose_snapshot(cache / name, download);
    searched.push_back((cache / name).string());
  }
  return Error{fmt::format("{}: neither a folder nor in the Hugging Face cache; looked for: {}", model, fmt::join(searched, ", ")),
               download};
}

}  // namespace reckoner
