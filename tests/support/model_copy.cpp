#include "support/model_copy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>

#include "formats/safetensors.h"
#include "quant/format.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGolden = "tests/golden/glm_moe_dsa";
constexpr const char* kPocket = "models/pocket";

[[noreturn]] void fail(std::string text) { throw std::runtime_error(std::move(text)); }

void must(const Status& status) {
  if (!status) fail(status.error().message());
}

// A tensor that owns its bytes.
struct OwnedTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::vector<OwnedTensor>;

Tensors read_tensors(const fs::path& path) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) fail(file.error().message());
  Tensors tensors;
  for (const TensorEntry& entry : file->tensors()) {
    const Tensor& tensor = entry.tensor;
    tensors.push_back({entry.name, tensor.dtype, tensor.shape, {tensor.data, tensor.data + tensor.bytes()}});
  }
  return tensors;
}

void write_tensors(const fs::path& path, std::span<OwnedTensor> tensors) {
  std::vector<NamedTensor> views;
  for (OwnedTensor& tensor : tensors) views.push_back({tensor.name, {tensor.bytes.data(), tensor.dtype, tensor.shape}});
  must(write_safetensors(path, views, {{"format", "pt"}}));
}

Tensors::iterator find(Tensors& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const OwnedTensor& tensor) { return tensor.name == name; });
  if (found == tensors.end()) fail(fmt::format("there is no tensor '{}' to damage", name));
  return found;
}

OwnedTensor scalar(std::string name, float value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(value)>>(value);
  return {std::move(name), DType::f32, {}, {bytes.begin(), bytes.end()}};
}

// A BF16 matrix as the tensors that a checkpoint in this format has for it.
Tensors packed(const OwnedTensor& matrix, QuantFormat format) {
  const Weight source{.format = QuantFormat::bf16, .rows = matrix.shape[0], .cols = matrix.shape[1], .data = matrix.bytes.data()};
  std::vector<float> values(static_cast<std::size_t>(source.rows * source.cols));
  for (std::int64_t row = 0; row < source.rows; ++row)
    info(source.format).dequantise(source, row, 0, source.cols, values.data() + row * source.cols);
  const std::string module = matrix.name.substr(0, matrix.name.rfind('.'));
  Tensors tensors;
  for (PackedTensor& part : info(format).pack(values, source.rows, source.cols, {}))
    tensors.push_back({module + std::string(part.suffix), part.dtype, part.shape, std::move(part.bytes)});
  if (format == QuantFormat::nvfp4) tensors.push_back(scalar(module + ".input_scale", 1.0f));
  return tensors;
}

Tensors golden_in(QuantFormat format) {
  Tensors tensors;
  for (OwnedTensor& tensor : read_tensors(fs::path(kGolden) / kFile)) {
    if (tensor.name.find(".experts.") == std::string::npos) {
      tensors.push_back(std::move(tensor));
    } else {
      for (OwnedTensor& part : packed(tensor, format)) tensors.push_back(std::move(part));
    }
  }
  return tensors;
}

void write_shards(const fs::path& folder, Tensors tensors) {
  const std::span<OwnedTensor> all(tensors);
  const std::size_t third = all.size() / 3;
  write_tensors(folder / kShard1, all.first(third));
  write_tensors(folder / kShard2, all.subspan(third, third));
  write_tensors(folder / kShard3, all.subspan(2 * third));
  std::string map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const char* shard = i < third ? kShard1 : i < 2 * third ? kShard2 : kShard3;
    map += fmt::format("{}    \"{}\": \"{}\"", i == 0 ? "" : ",\n", all[i].name, shard);
  }
  std::ofstream(folder / kIndex) << "{\n  \"weight_map\": {\n" << map << "\n  }\n}\n";
}

constexpr const char* kQuantConfig = R"({
  "producer": {"name": "modelopt", "version": "0.46.0"},
  "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
}
)";

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "reckoner_model_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("cannot make a temporary folder");
  return name;
}

void copy_files(const char* from, std::initializer_list<const char*> names, const fs::path& to) {
  for (const char* name : names) fs::copy_file(fs::path(from) / name, to / name);
}

}  // namespace

ModelCopy::ModelCopy(Base base) : path_(new_folder()) {
  copy_files(kPocket, {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}, path_);
  copy_files(base == Base::pocket ? kPocket : kGolden, {"config.json", "generation_config.json"}, path_);
  if (base == Base::bf16) copy_files(kGolden, {kFile}, path_);
  if (base == Base::pocket) copy_files(kPocket, {"hf_quant_config.json", kIndex, kShard1, kShard2, kShard3}, path_);
  if (base == Base::nvfp4 || base == Base::sharded) {
    write("hf_quant_config.json", kQuantConfig);
    Tensors tensors = golden_in(QuantFormat::nvfp4);
    base == Base::nvfp4 ? write_tensors(path_ / kFile, tensors) : write_shards(path_, std::move(tensors));
  }
  if (base == Base::fp8) {
    Tensors tensors = golden_in(QuantFormat::fp8_block);
    write_tensors(path_ / kFile, tensors);
  }
}

std::string ModelCopy::shorten(std::string message) const {
  for (std::size_t at = message.find(path_.string()); at != std::string::npos; at = message.find(path_.string()))
    message.replace(at, path_.string().size(), "DIR");
  return message;
}

std::vector<std::string> ModelCopy::listing() const {
  std::vector<std::string> entries;
  if (!fs::is_directory(path_)) return entries;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path_)) {
    struct stat info = {};
    if (::lstat(entry.path().c_str(), &info) != 0) fail("cannot list " + entry.path().string());
    entries.push_back(fmt::format("{} {} {}.{:09}", entry.path().string(), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string ModelCopy::read(std::string_view file) const {
  std::ifstream in(path_ / file, std::ios::binary);
  if (!in) fail(fmt::format("there is no file {} to damage", file));
  return {std::istreambuf_iterator<char>(in), {}};
}

void ModelCopy::write(std::string_view file, std::string_view content) const { std::ofstream(path_ / file, std::ios::binary) << content; }

void ModelCopy::remove(std::string_view file) const {
  if (!fs::remove(path_ / file)) fail(fmt::format("there is no file {} to remove", file));
}

void ModelCopy::remove_all() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
}

void ModelCopy::move(std::string_view from, std::string_view to) const { fs::rename(path_ / from, path_ / to); }

void ModelCopy::resize(std::string_view file, std::int64_t change_bytes) const {
  fs::resize_file(path_ / file, fs::file_size(path_ / file) + static_cast<std::uintmax_t>(change_bytes));
}

void ModelCopy::replace(std::string_view file, std::string_view from, std::string_view to) const {
  std::string text = read(file);
  const std::size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos)
    fail(fmt::format("{} has not '{}' exactly once", file, from));
  write(file, text.replace(at, from.size(), to));
}

namespace {

std::uint64_t read_u64(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t at = 8; at-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at]);
  return value;
}

std::string u64_bytes(std::uint64_t value) {
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(value >> (8 * byte) & 0xff);
  return bytes;
}

}  // namespace

void ModelCopy::set_header(std::string_view file, std::string_view header) const {
  const std::string whole = read(file);
  write(file, u64_bytes(header.size()) + std::string(header) + whole.substr(8 + read_u64(whole)));
}

void ModelCopy::replace_in_header(std::string_view file, std::string_view from, std::string_view to) const {
  const std::string whole = read(file);
  std::string header = whole.substr(8, read_u64(whole));
  const std::size_t at = header.find(from);
  if (at == std::string::npos || header.find(from, at + 1) != std::string::npos)
    fail(fmt::format("the header of {} has not '{}' exactly once", file, from));
  set_header(file, header.replace(at, from.size(), to));
}

void ModelCopy::set_header_length(std::string_view file, std::uint64_t length) const {
  write(file, u64_bytes(length) + read(file).substr(8));
}

void ModelCopy::drop_tensor(std::string_view file, std::string_view name) const {
  Tensors tensors = read_tensors(path_ / file);
  tensors.erase(find(tensors, name));
  write_tensors(path_ / file, tensors);
}

void ModelCopy::rename_tensor(std::string_view file, std::string_view name, std::string_view new_name) const {
  Tensors tensors = read_tensors(path_ / file);
  find(tensors, name)->name = new_name;
  write_tensors(path_ / file, tensors);
}

void ModelCopy::move_tensor(std::string_view from, std::string_view to, std::string_view name) const {
  Tensors source = read_tensors(path_ / from);
  Tensors target = read_tensors(path_ / to);
  const auto tensor = find(source, name);
  target.push_back(std::move(*tensor));
  source.erase(tensor);
  write_tensors(path_ / from, source);
  write_tensors(path_ / to, target);
}

void ModelCopy::copy_tensor(std::string_view from, std::string_view to, std::string_view name) const {
  Tensors source = read_tensors(path_ / from);
  Tensors target = fs::exists(path_ / to) ? read_tensors(path_ / to) : Tensors();
  target.push_back(std::move(*find(source, name)));
  write_tensors(path_ / to, target);
}

void ModelCopy::put_tensor(std::string_view file, std::string_view name, DType dtype, const Shape& shape) const {
  Tensors tensors = read_tensors(path_ / file);
  std::erase_if(tensors, [&](const OwnedTensor& tensor) { return tensor.name == name; });
  tensors.push_back(
      {std::string(name), dtype, shape, std::vector<std::byte>(static_cast<std::size_t>(shape.elements() * size_bytes(dtype)))});
  write_tensors(path_ / file, tensors);
}

void ModelCopy::set_bytes(std::string_view file, std::string_view tensor, std::int64_t offset, std::initializer_list<int> bytes) const {
  Tensors tensors = read_tensors(path_ / file);
  std::vector<std::byte>& target = find(tensors, tensor)->bytes;
  for (const int byte : bytes) target.at(static_cast<std::size_t>(offset++)) = static_cast<std::byte>(byte);
  write_tensors(path_ / file, tensors);
}

void ModelCopy::set_f32(std::string_view file, std::string_view tensor, std::int64_t element, float value) const {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  set_bytes(file, tensor, 4 * element,
            {static_cast<int>(bits & 0xff), static_cast<int>(bits >> 8 & 0xff), static_cast<int>(bits >> 16 & 0xff),
             static_cast<int>(bits >> 24)});
}

}  // namespace reckoner
