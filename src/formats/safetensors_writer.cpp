#include <fmt/format.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fstream>
#include <set>
#include <system_error>

#include "formats/safetensors.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::object header_entry(const Tensor& tensor, std::int64_t begin) {
  json::array shape;
  for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.dim(axis));
  const std::string_view dtype = name(tensor.dtype);
  return {{"dtype", json::string_view(dtype.data(), dtype.size())},
          {"shape", std::move(shape)},
          {"data_offsets", json::array{begin, begin + tensor.bytes()}}};
}

std::string header_json(std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object& object = header["__metadata__"].emplace_object();
    for (const auto& [key, value] : metadata) object[key] = value;
  }
  std::int64_t begin = 0;
  for (const NamedTensor& entry : tensors) {
    header[entry.name] = header_entry(entry.tensor, begin);
    begin += entry.tensor.bytes();
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Status check_names(const std::filesystem::path& path, std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& entry : tensors) {
    if (entry.name == "__metadata__") return Error{fmt::format("{}: a tensor cannot be called '__metadata__'", path.string())};
    if (!names.insert(entry.name).second)
      return Error{fmt::format("{}: cannot write two tensors of the name '{}'", path.string(), entry.name)};
  }
  return {};
}

}  // namespace

std::string safetensors_header(std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata) {
  const std::string header = header_json(tensors, metadata);
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(header.size() >> (8 * byte) & 0xff);
  return text + header;
}

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata) {
  TRY(check_names(path, tensors));
  // The process id keeps two writers of the same file apart; the last one to finish wins.
  const std::filesystem::path temporary = fmt::format("{}.{}.part", path.string(), ::getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << safetensors_header(tensors, metadata);
  for (const NamedTensor& entry : tensors) out.write(reinterpret_cast<const char*>(entry.tensor.data), entry.tensor.bytes());
  out.close();
  std::error_code failure;
  if (out) std::filesystem::rename(temporary, path, failure);
  if (out && !failure) return {};
  const std::string reason = failure ? failure.message() : "writing failed";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return Error{fmt::format("{}: cannot write the file: {}", path.string(), reason),
               "check that the folder exists, is writable and has space left"};
}

}  // namespace reckoner
