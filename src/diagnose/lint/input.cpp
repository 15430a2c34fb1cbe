#include "diagnose/lint/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <system_error>

#include "base/mapped_file.h"

namespace reckoner::lint {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 14> kParts = {".weight",
                                                     ".weight_packed",
                                                     ".weight_shape",
                                                     ".weight_scale",
                                                     ".weight_scale_inv",
                                                     ".weight_scale_2",
                                                     ".weight_global_scale",
                                                     ".weight_zero_point",
                                                     ".input_scale",
                                                     ".input_global_scale",
                                                     ".k_scale",
                                                     ".v_scale",
                                                     ".q_scale",
                                                     ".bias"};

LintDocument read_document(const fs::path& folder, const char* name) {
  LintDocument document{.name = name};
  std::error_code error;
  document.present = fs::exists(fs::symlink_status(folder / name, error));
  if (!document.present) return document;
  Result<JsonDocument> json = read_json_file(folder / name);
  json ? static_cast<void>(document.json = std::move(json).value()) : static_cast<void>(document.error = json.error().what);
  return document;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// An index that is partly nonsense gives what it can.
void read_index(LintInput& input) {
  if (!input.index.json) return;
  const Result<std::optional<JsonNode>> map = input.index.json->root().optional("weight_map");
  if (!map || !*map || !(*map)->is_object()) {
    input.index.error = "there is no weight_map";
    return;
  }
  const auto members = (*map)->as_object();
  for (const auto& [tensor, node] : *members) {
    const Result<std::string> file = node.as_string();
    if (file && is_plain_name(*file)) {
      input.weight_map.emplace(tensor, *file);
    } else if (input.index.error.empty()) {
      input.index.error = node.unexpected("the name of a file in the same folder").what;
    }
  }
  const Result<std::optional<JsonNode>> metadata = input.index.json->root().optional("metadata");
  if (!metadata || !*metadata || !(*metadata)->is_object()) return;
  const Result<std::optional<JsonNode>> size = (*metadata)->optional("total_size");
  if (!size || !*size) return;
  if (const Result<std::int64_t> bytes = (*size)->as_int64(0, std::int64_t{1} << 60)) input.total_size = *bytes;
}

std::set<std::string> safetensors_files(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".safetensors") names.insert(at->path().filename().string());
  }
  return names;
}

// The header of a file; the mapping goes away again, so that memory does not grow with the file.
void read_header(LintFile& file) {
  std::error_code error;
  file.present = fs::is_regular_file(file.path, error);
  if (!file.present) return;
  file.bytes = static_cast<std::int64_t>(fs::file_size(file.path, error));
  const Result<MappedFile> mapped = MappedFile::open(file.path);
  if (!mapped) {
    file.error = mapped.error().what;
    return;
  }
  Result<SafetensorsHeader> header = parse_safetensors_header(mapped->bytes(), file.name);
  header ? static_cast<void>(file.header = std::move(header).value()) : static_cast<void>(file.error = header.error().what);
}

void read_files(LintInput& input) {
  std::set<std::string> names = safetensors_files(input.folder);
  const bool has_single = names.contains("model.safetensors");
  std::set<std::string> indexed;
  for (const auto& [tensor, file] : input.weight_map) indexed.insert(file);
  names.insert(indexed.begin(), indexed.end());
  for (const std::string& name : names) {
    auto file = std::make_unique<LintFile>(LintFile{.name = name, .path = input.folder / name});
    file->served = !indexed.empty() ? indexed.contains(name) : !has_single || name == "model.safetensors";
    read_header(*file);
    input.files.push_back(std::move(file));
  }
}

void collect_tensors(LintInput& input) {
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (!file->header) continue;
    for (TensorEntry& entry : file->header->content.tensors) {
      const std::int64_t bytes = entry.tensor.bytes();
      input.tensors.push_back({.name = std::move(entry.name),
                               .dtype = entry.tensor.dtype,
                               .shape = entry.tensor.shape,
                               .bytes = bytes,
                               .offset = entry.file_offset,
                               .file = file.get(),
                               .whole = entry.file_offset + bytes <= file->bytes,
                               .served = file->served});
    }
    file->header->content.tensors = {};
  }
  std::stable_sort(input.tensors.begin(), input.tensors.end(),
                   [](const LintTensor& a, const LintTensor& b) { return a.name != b.name ? a.name < b.name : a.served > b.served; });
  for (std::size_t i = 1; i < input.tensors.size(); ++i) {
    if (input.tensors[i].name == input.tensors[i - 1].name) input.tensors[i].served = false;
  }
}

std::string_view part_of(std::string_view name) {
  for (const std::string_view part : kParts) {
    if (name.size() > part.size() && name.ends_with(part)) return part;
  }
  return {};
}

Storage storage_of_fp8(const LintModule& module) {
  if (module.part(".weight_scale_inv") != nullptr) return Storage::fp8_block;
  const LintTensor* scale = module.part(".weight_scale");
  if (scale == nullptr) return Storage::unknown;
  const LintTensor& data = *module.data();
  if (scale->shape.elements() == 1 && (data.shape.rank() < 2 || data.shape[0] > 1)) return Storage::fp8_tensor;
  if (scale->dtype == DType::u8 || (scale->dtype == DType::f8_e8m0 && scale->shape.rank() == 2 && scale->shape[0] == data.shape[0]))
    return Storage::mxfp8;
  const bool one_a_row = scale->shape.rank() >= 1 && scale->shape.elements() == data.shape[0];
  return one_a_row && (scale->shape.rank() == 1 || scale->shape[1] == 1) ? Storage::fp8_channel : Storage::fp8_block;
}

Storage storage_of(const LintModule& module) {
  const LintTensor* data = module.data();
  if (data == nullptr) return Storage::none;
  const LintTensor* scale = module.part(".weight_scale");
  const bool packed = module.part(".weight_packed") != nullptr;
  switch (data->dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return Storage::plain;
    case DType::u8:
      if (scale != nullptr && (scale->dtype == DType::u8 || scale->dtype == DType::f8_e8m0)) return Storage::mxfp4;
      return packed ? Storage::nvfp4_packed : Storage::nvfp4;
    case DType::i32:
      return packed ? Storage::int4 : Storage::unknown;
    case DType::f8_e4m3:
      return storage_of_fp8(module);
    default:
      return Storage::unknown;
  }
}

void collect_modules(LintInput& input) {
  std::map<std::string_view, std::size_t> places;
  for (const LintTensor& tensor : input.tensors) {
    if (!tensor.served) continue;
    const std::string_view part = part_of(tensor.name);
    if (part.empty()) continue;
    const std::string_view name = std::string_view(tensor.name).substr(0, tensor.name.size() - part.size());
    const auto [place, is_new] = places.emplace(name, input.modules.size());
    if (is_new) {
      input.modules.push_back(
          {.name = std::string(name), .layer = number_after(name, "layers."), .expert = number_after(name, ".experts.")});
    }
    input.modules[place->second].parts.emplace(part, &tensor);
  }
  for (LintModule& module : input.modules) module.storage = storage_of(module);
  std::sort(input.modules.begin(), input.modules.end(), [](const LintModule& a, const LintModule& b) { return a.name < b.name; });
}

void read_config(LintInput& input) {
  if (!input.config.json) {
    input.model_error = input.config.present ? input.config.error : input.config.name + ": missing";
    return;
  }
  std::optional<JsonNode> generation;
  if (input.generation_config.json) generation = input.generation_config.json->root();
  Result<ModelConfig> model = parse_model_config(input.config.json->root(), generation);
  if (!model && generation) {
    if (Result<ModelConfig> alone = parse_model_config(input.config.json->root(), std::nullopt)) {
      input.generation_config.error = model.error().what;
      model = std::move(alone);
    }
  }
  if (!model) {
    input.model_error = model.error().what;
    return;
  }
  input.model = std::move(model).value();
  const Result<const Family*> family = find_family(*input.model);
  family ? static_cast<void>(input.family = *family) : static_cast<void>(input.family_error = family.error().what);
}

void read_quant(LintInput& input) {
  const Result<JsonDocument> empty = parse_json("{}", "config.json");
  std::optional<JsonNode> hf;
  if (input.hf_quant_config.json) hf = input.hf_quant_config.json->root();
  Result<QuantMetadata> quant = parse_quant_metadata(input.config.json ? input.config.json->root() : empty->root(), hf);
  quant ? static_cast<void>(input.quant = std::move(quant).value()) : static_cast<void>(input.quant_error = quant.error().what);
}

void read_tokenizer(LintInput& input) {
  for (const char* name : {"tokenizer.json", "tiktoken.model", "vocab.json"}) {
    std::error_code error;
    input.has_tokenizer_files |= fs::exists(fs::symlink_status(input.folder / name, error));
  }
  if (!input.has_tokenizer_files) return;
  Result<Tokenizer> tokenizer = Tokenizer::load(input.folder);
  if (tokenizer) {
    input.tokenizer = std::move(tokenizer).value();
  } else {
    input.tokenizer_error = tokenizer.error().what;
  }
}

}  // namespace

std::string_view storage_name(Storage storage) {
  constexpr std::array<std::string_view, 11> kNames = {
      "nothing", "unquantised",      "NVFP4", "NVFP4", "MXFP4", "INT4", "FP8 by block", "FP8 by channel", "FP8 by tensor",
      "MXFP8",   "an unknown format"};
  return kNames[static_cast<std::size_t>(storage)];
}

bool is_quantised(Storage storage) { return storage != Storage::none && storage != Storage::plain; }

const LintTensor* LintModule::part(std::string_view suffix) const {
  const auto at = parts.find(suffix);
  return at == parts.end() ? nullptr : at->second;
}

const LintTensor* LintModule::data() const {
  const LintTensor* packed = part(".weight_packed");
  return packed != nullptr ? packed : part(".weight");
}

const LintTensor* LintModule::block_scales() const {
  if (const LintTensor* scale = part(".weight_scale_inv")) return scale;  // a small matrix is one block
  const LintTensor* scale = part(".weight_scale");
  return scale != nullptr && scale->shape.elements() > 1 ? scale : nullptr;
}

std::string_view LintModule::leaf() const { return std::string_view(name).substr(name.rfind('.') + 1); }

std::string_view LintModule::parent() const {
  const std::size_t dot = name.rfind('.');
  return std::string_view(name).substr(0, dot == std::string::npos ? 0 : dot);
}

bool LintInput::complete() const {
  return !files.empty() && std::all_of(files.begin(), files.end(), [](const auto& file) { return !file->served || file->header; });
}

const LintTensor* LintInput::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const LintTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors.end() && at->name == name && at->served ? &*at : nullptr;
}

const LintModule* LintInput::find_module(std::string_view name) const {
  const auto at = std::lower_bound(modules.begin(), modules.end(), name,
                                   [](const LintModule& module, std::string_view wanted) { return module.name < wanted; });
  return at != modules.end() && at->name == name ? &*at : nullptr;
}

std::optional<float> LintInput::scalar(const LintTensor* tensor) const {
  const auto at = scalars.find(tensor);
  return at == scalars.end() ? std::nullopt : std::optional(at->second);
}

std::optional<JsonNode> LintInput::text_config() const {
  if (!config.json || !config.json->root().is_object()) return std::nullopt;
  const JsonNode root = config.json->root();
  const Result<std::optional<JsonNode>> text = root.optional("text_config");
  const Result<std::optional<JsonNode>> own = root.optional("hidden_size");
  if (text && *text && (*text)->is_object() && own && !*own) return *text;
  return root;
}

LintInput read_input(const fs::path& folder, const LintOptions& options) {
  LintInput input{.folder = folder};
  input.config = read_document(folder, "config.json");
  input.generation_config = read_document(folder, "generation_config.json");
  input.hf_quant_config = read_document(folder, "hf_quant_config.json");
  input.index = read_document(folder, "model.safetensors.index.json");
  input.tokenizer_config = read_document(folder, "tokenizer_config.json");
  read_index(input);
  read_files(input);
  collect_tensors(input);
  collect_modules(input);
  read_config(input);
  read_quant(input);
  if (options.depth != LintDepth::load) read_tokenizer(input);
  return input;
}

std::string where(const LintTensor& tensor) { return fmt::format("{}: tensor '{}'", tensor.file->name, tensor.name); }

std::string own_words(const LintInput& input, const std::string& file, const std::string& error) {
  for (const std::string& prefix : {(input.folder / file).string() + ": ", file + ": "}) {
    if (error.starts_with(prefix)) return error.substr(prefix.size());
  }
  return error;
}

std::optional<std::int64_t> number_after(std::string_view name, std::string_view part) {
  const std::size_t at = name.find(part);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const char* first = name.data() + at + part.size();
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), value);
  if (error != std::errc() || end == first) return std::nullopt;
  return value;
}

}  // namespace reckoner::lint
