#include "formats/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_map>

#include "base/json.h"
#include "formats/remedy.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr std::size_t kMaxListed = 8;  // problems of one kind that a message lists

using WeightMap = std::unordered_map<std::string, std::string>;  // tensor -> shard

struct Index {
  fs::path path;
  WeightMap weight_map;
  std::optional<std::int64_t> total_bytes;  // metadata.total_size, which tools compute in different ways
};

// "a, b, c and 4 more"
std::string listed(const std::vector<std::string>& items, std::string_view separator = ", ") {
  const std::size_t count = std::min(items.size(), kMaxListed);
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count), separator));
  if (items.size() > count) text += fmt::format("{}and {} more", count > 0 ? " " : "", items.size() - count);
  return text;
}

// Names in a folder, sorted; empty when it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Files that a download left half done: in the folder itself, where `hf download --local-dir` keeps them, and among the blobs of the cache.
std::vector<std::string> unfinished_downloads(const fs::path& folder) {
  std::vector<std::string> found;
  for (const char* place : {"", ".cache/huggingface/download", "../../blobs"}) {
    for (const std::string& name : names_in(folder / place)) {
      const std::string extension = fs::path(name).extension().string();
      if (extension == ".incomplete" || extension == ".part" || extension == ".aria2" || extension == ".crdownload")
        found.push_back((fs::path(place) / name).string());
    }
  }
  return found;
}

std::string unfinished_text(const fs::path& folder) {
  const std::vector<std::string> found = unfinished_downloads(folder);
  return found.empty() ? "" : fmt::format("; unfinished downloads are here: {}", listed(found));
}

Error nothing_to_open(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error))
    return {fmt::format("{}: the model folder does not exist", folder.string()), "check the path, or download the model"};
  if (!fs::is_directory(folder, error))
    return {fmt::format("{}: expected a model folder, found a file", folder.string()), "give the folder that holds config.json"};
  const std::vector<std::string> names = names_in(folder);
  return {fmt::format("{}: expected {} or {}, found {}{}", folder.string(), kIndexName, kSingleName,
                      names.empty() ? "an empty folder" : "only: " + listed(names), unfinished_text(folder)),
          "download the model's safetensors files; other formats (GGUF, PyTorch .bin) are not read"};
}

// A shard's name must be a plain file name: an index may not point outside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Result<Index> read_index(const fs::path& path) {
  const JsonDocument document = TRY(read_json_file(path));
  const JsonNode root = document.root();
  Index index{.path = path, .weight_map = {}, .total_bytes = {}};
  const JsonNode map = TRY(root.required("weight_map"));
  for (const auto& [tensor, node] : TRY(map.as_object())) {
    std::string shard = TRY(node.as_string());
    if (!is_plain_name(shard)) return node.unexpected("the name of a file in the same folder");
    index.weight_map.emplace(tensor, std::move(shard));
  }
  if (index.weight_map.empty()) return map.error("expected at least one tensor, found none", "download this file again");
  const std::optional<JsonNode> metadata = TRY(root.optional("metadata"));
  if (!metadata || !metadata->is_object()) return index;
  if (const std::optional<JsonNode> size = TRY(metadata->optional("total_size"))) {
    const Result<std::int64_t> bytes = size->as_int64(0, std::int64_t{1} << 60);
    if (bytes) index.total_bytes = *bytes;
  }
  return index;
}

// Opens all shards, or reports all that are missing or damaged: a user downloads them in one go.
Result<std::vector<SafetensorsFile>> open_shards(const Index& index, const fs::path& folder) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index.weight_map) shards.insert(shard);
  std::vector<SafetensorsFile> files;
  std::vector<std::string> missing;
  std::vector<Error> damaged;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!fs::exists(folder / shard, error)) {
      missing.push_back(shard);
      continue;
    }
    Result<SafetensorsFile> file = SafetensorsFile::open(folder / shard);
    file ? files.push_back(std::move(file).value()) : damaged.push_back(std::move(file).error());
  }
  if (missing.empty() && damaged.empty()) return files;
  if (missing.empty() && damaged.size() == 1) return damaged.front();
  std::vector<std::string> problems;
  if (!missing.empty())
    problems.push_back(fmt::format("{}: {} of {} files are missing: {}{}", index.path.string(), missing.size(), shards.size(),
                                   listed(missing), unfinished_text(folder)));
  for (const Error& error : damaged) problems.push_back(error.what);
  return Error{listed(problems, "\n"), "download the files named again"};
}

// Where in `tensors`, which is sorted by name, a name is; null when absent.
const CheckpointTensor* search(const std::vector<CheckpointTensor>& tensors, std::string_view name) {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const CheckpointTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::string file_name(const SafetensorsFile& file) { return file.path().filename().string(); }

// All tensors of the files, sorted by name, each name once.
Result<std::vector<CheckpointTensor>> collect(const std::vector<SafetensorsFile>& files, const fs::path& folder) {
  std::vector<CheckpointTensor> tensors;
  for (const SafetensorsFile& file : files) {
    for (const TensorEntry& entry : file.tensors()) tensors.push_back({entry.name, entry.tensor, &file, entry.file_offset});
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const CheckpointTensor& a, const CheckpointTensor& b) { return a.name < b.name; });
  const auto same_name = [](const CheckpointTensor& a, const CheckpointTensor& b) { return a.name == b.name; };
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(), same_name);
  if (twice == tensors.end()) return tensors;
  return Error{fmt::format("{}: tensor '{}' is in two files: {} and {}", folder.string(), twice->name, file_name(*twice->file),
                           file_name(*std::next(twice)->file)),
               "remove the file that does not belong to this model, or download the model again"};
}

// What the index names must be where it says. What it leaves out is read all the same, with a note: published repacks have left out scales.
Status compare_with_index(const std::vector<CheckpointTensor>& tensors, const Index& index, std::vector<std::string>& notes) {
  std::vector<std::string> missing;
  for (const auto& [name, shard] : index.weight_map) {
    const CheckpointTensor* tensor = search(tensors, name);
    if (tensor == nullptr) {
      missing.push_back(fmt::format("'{}' ({})", name, shard));
    } else if (file_name(*tensor->file) != shard) {
      return Error{fmt::format("{}: tensor '{}': expected in {}, found in {}", index.path.string(), name, shard, file_name(*tensor->file)),
                   "index and files are from different versions of the model: download both again"};
    }
  }
  std::sort(missing.begin(), missing.end());
  if (!missing.empty())
    return Error{
        fmt::format("{}: {} tensors of the index are not in the files named: {}", index.path.string(), missing.size(), listed(missing)),
        "index and files are from different versions of the model: download both again"};
  std::vector<std::string> unknown;
  for (const CheckpointTensor& tensor : tensors) {
    if (!index.weight_map.contains(tensor.name)) unknown.push_back(fmt::format("'{}' ({})", tensor.name, file_name(*tensor.file)));
  }
  if (!unknown.empty())
    notes.push_back(fmt::format("{}: {} tensors in the files are not listed in the index: {}; they are read from the files' own headers",
                                index.path.string(), unknown.size(), listed(unknown)));
  return {};
}

// What is odd about the folder but does not prevent loading.
std::vector<std::string> folder_notes(const fs::path& folder, const std::vector<SafetensorsFile>& files) {
  std::set<std::string> used;
  for (const SafetensorsFile& file : files) used.insert(file_name(file));
  std::vector<std::string> notes;
  for (const std::string& name : names_in(folder)) {
    if (fs::path(name).extension() == ".safetensors" && !used.contains(name))
      notes.push_back(fmt::format("{}: not read: no part of the checkpoint names it", (folder / name).string()));
  }
  if (const std::vector<std::string> found = unfinished_downloads(folder); !found.empty())
    notes.push_back(fmt::format("{}: leftovers of unfinished downloads: {}", folder.string(), listed(found)));
  return notes;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  std::optional<Index> index;
  std::error_code error;
  if (fs::exists(folder / kIndexName, error)) {
    index = TRY(with_remedy(read_index(folder / kIndexName), kCorrectFile));
    checkpoint.files_ = TRY(open_shards(*index, folder));
  } else if (fs::exists(folder / kSingleName, error)) {
    checkpoint.files_.push_back(TRY(SafetensorsFile::open(folder / kSingleName)));
  } else {
    return nothing_to_open(folder);
  }
  // From here on files_ neither grows nor shrinks: the tensors point into it.
  checkpoint.tensors_ = TRY(collect(checkpoint.files_, folder));
  if (index) TRY(compare_with_index(checkpoint.tensors_, *index, checkpoint.notes_));
  for (const CheckpointTensor& tensor : checkpoint.tensors_) checkpoint.total_bytes_ += tensor.tensor.bytes();
  for (std::string& note : folder_notes(folder, checkpoint.files_)) checkpoint.notes_.push_back(std::move(note));
  if (index && index->total_bytes && *index->total_bytes != checkpoint.total_bytes_)
    checkpoint.notes_.push_back(fmt::format("{}: metadata.total_size says {} bytes, the tensors have {}; the tensors count",
                                            index->path.string(), *index->total_bytes, checkpoint.total_bytes_));
  return checkpoint;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const CheckpointTensor& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

const CheckpointTensor* Checkpoint::find_entry(std::string_view name) const { return search(tensors_, name); }

const Tensor* Checkpoint::find(std::string_view name) const {
  const CheckpointTensor* entry = search(tensors_, name);
  return entry == nullptr ? nullptr : &entry->tensor;
}

std::string Checkpoint::locate(std::string_view name) const {
  const CheckpointTensor* entry = search(tensors_, name);
  return fmt::format("{}: tensor '{}'", entry == nullptr ? folder_.string() : file_name(*entry->file), name);
}

}  // namespace reckoner
