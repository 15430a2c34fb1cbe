#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/json.h"
#include "formats/remedy.h"

namespace reckoner {
namespace {

constexpr std::int64_t kLengthBytes = 8;             // the u64 in front of the header
constexpr std::int64_t kMaxHeaderBytes = 100000000;  // the limit of the published implementation
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr const char* kDownloadAgain = "download this file again";

bool starts_with(std::span<const std::byte> bytes, std::string_view start) {
  return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

// What a file that is not safetensors is, when its first bytes tell. Empty otherwise.
std::string_view recognise(std::span<const std::byte> file) {
  if (is_lfs_pointer(file)) return "a Git LFS pointer: the file's content was not downloaded";
  // A valid header length has zeros in its upper bytes, so these texts and signatures cannot be one.
  if (starts_with(file, "<!DOCTYPE") || starts_with(file, "<!doctype") || starts_with(file, "<html") || starts_with(file, "<?xml"))
    return "a web page: the download was answered with an error or a login page";
  if (starts_with(file, "GGUF")) return "a GGUF file";
  if (starts_with(file, "PK\x03\x04")) return "a zip archive (a PyTorch .bin checkpoint?)";
  return {};
}

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t at = 0; at < 8; ++at) value |= std::to_integer<std::uint64_t>(bytes[at]) << (8 * at);
  return value;
}

// The header's length after all checks that need no JSON.
Result<std::int64_t> header_bytes(std::span<const std::byte> file, std::string_view where) {
  if (const std::string_view kind = recognise(file); !kind.empty())
    return Error{fmt::format("{}: expected a safetensors file, found {}", where, kind),
                 is_lfs_pointer(file) ? "run `git lfs pull` in that folder, or download this file again" : kDownloadAgain};
  if (file.size() < kLengthBytes)
    return Error{fmt::format("{}: truncated: expected at least {} bytes, found {}", where, kLengthBytes, file.size()), kDownloadAgain};
  const std::uint64_t length = read_u64(file);
  const std::int64_t rest = static_cast<std::int64_t>(file.size()) - kLengthBytes;
  if (length == 0)
    return Error{
        fmt::format("{}: the header length is 0: the file starts with zeros, as one whose space was reserved but never filled", where),
        kDownloadAgain};
  if (length > kMaxHeaderBytes)
    return Error{fmt::format("{}: expected a header of at most {} bytes, found a length of {}: not a safetensors file, or damaged", where,
                             kMaxHeaderBytes, length),
                 kDownloadAgain};
  if (static_cast<std::int64_t>(length) > rest)
    return Error{fmt::format("{}: truncated inside the header: expected {} bytes of header after the first {}, found {}", where, length,
                             kLengthBytes, rest),
                 kDownloadAgain};
  return static_cast<std::int64_t>(length);
}

Result<DType> read_dtype(const JsonNode& tensor) {
  const JsonNode node = TRY(tensor.required("dtype"));
  const std::optional<DType> dtype = dtype_from_name(TRY(node.as_string()));
  if (!dtype)
    return node.error(fmt::format("{} is not a supported dtype", node.describe()),
                      "use an export of the model in supported dtypes: F32, F16, BF16, F64, F8_E4M3, F8_E5M2, F8_E8M0, I8, U8, I16, U16, "
                      "I32, U32, I64, U64, BOOL");
  return *dtype;
}

// Also makes sure that no product of dimensions overflows later, whichever are taken together.
Result<Shape> read_shape(const JsonNode& tensor, std::int64_t element_bytes) {
  const JsonNode node = TRY(tensor.required("shape"));
  const std::vector<JsonNode> dims = TRY(node.as_array());
  if (dims.size() > Shape::kMaxRank)
    return node.error(fmt::format("expected at most {} dimensions, found {}", Shape::kMaxRank, dims.size()));
  Shape shape;
  std::int64_t bytes = element_bytes;
  for (const JsonNode& dim : dims) {
    const std::int64_t extent = TRY(dim.as_int64(0, kMaxInt64));
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) return node.error("the tensor's size overflows 64 bits");
    shape.push_back(extent);
  }
  return shape;
}

// `tensor.data` is left null and `file_offset` counts from the start of the data region: the file's size is not yet known to fit.
Result<TensorEntry> read_entry(std::string name, const JsonNode& node) {
  TensorEntry entry{.name = std::move(name), .tensor = {}};
  entry.tensor.dtype = TRY(read_dtype(node));
  entry.tensor.shape = TRY(read_shape(node, size_bytes(entry.tensor.dtype)));
  const JsonNode offsets = TRY(node.required("data_offsets"));
  const std::vector<JsonNode> pair = TRY(offsets.as_array());
  if (pair.size() != 2) return offsets.unexpected("two offsets, [begin, end]");
  const std::int64_t begin = TRY(pair[0].as_int64(0, kMaxInt64));
  const std::int64_t end = TRY(pair[1].as_int64(0, kMaxInt64));
  if (begin > end) return offsets.error(fmt::format("expected begin <= end, found [{}, {}]", begin, end));
  if (end - begin != entry.tensor.bytes())
    return offsets.error(fmt::format("expected {} bytes ({} {}), found {} bytes ([{}, {}])", entry.tensor.bytes(),
                                     reckoner::name(entry.tensor.dtype), entry.tensor.shape.to_string(), end - begin, begin, end));
  entry.file_offset = begin;
  return entry;
}

Result<SafetensorsMetadata> read_metadata(const JsonNode& node) {
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : TRY(node.as_object())) metadata.emplace(key, TRY(value.as_string()));
  return metadata;
}

Result<SafetensorsContent> read_header(std::string_view text, std::string_view where) {
  if (text.front() != '{')
    return Error{fmt::format("{}: header: expected a JSON object, found something else: not a safetensors file, or damaged", where),
                 kDownloadAgain};
  const Result<JsonDocument> document = parse_json(text, fmt::format("{}: header", where));
  if (!document) return Error{document.error().what, kDownloadAgain};  // the JSON of a binary file is not corrected by hand
  const JsonNode root = document->root();
  SafetensorsContent content;
  for (auto& [name, node] : TRY(root.as_object())) {
    if (name == kMetadataKey) {
      content.metadata = TRY(read_metadata(node));
    } else {
      content.tensors.push_back(TRY(read_entry(name, node.renamed(fmt::format("tensor '{}'", name)))));
    }
  }
  return content;
}

Error truncated(const std::vector<TensorEntry>& tensors, std::int64_t header_end, std::int64_t file_size, std::string_view where) {
  const std::int64_t data_size = file_size - header_end;
  std::int64_t end = 0;
  std::int64_t affected = 0;
  const TensorEntry* first = nullptr;
  for (const TensorEntry& entry : tensors) {
    const std::int64_t entry_end = entry.file_offset + entry.tensor.bytes();
    end = std::max(end, entry_end);
    if (entry_end <= data_size) continue;
    if (first == nullptr) first = &entry;
    ++affected;
  }
  return {fmt::format("{}: truncated: expected {} bytes, found {}; {} of {} tensors are incomplete, the first is '{}'", where,
                      static_cast<std::uint64_t>(header_end) + static_cast<std::uint64_t>(end), file_size, affected, tensors.size(),
                      first->name),
          kDownloadAgain};
}

// The tensors, sorted by offset, must tile the data region exactly.
Status check_layout(const std::vector<TensorEntry>& tensors, std::int64_t header_end, std::int64_t file_size, std::string_view where) {
  std::int64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : tensors) {
    const std::int64_t begin = entry.file_offset;
    if (begin + entry.tensor.bytes() > file_size - header_end) return truncated(tensors, header_end, file_size, where);
    if (begin < covered)
      return Error{fmt::format("{}: tensors '{}' and '{}' overlap at data offset {}", where, previous->name, entry.name, begin),
                   kDownloadAgain};
    if (begin > covered)
      return Error{fmt::format("{}: {} bytes before tensor '{}' belong to no tensor: expected its data at offset {}, found {}", where,
                               begin - covered, entry.name, covered, begin),
                   kDownloadAgain};
    covered = begin + entry.tensor.bytes();
    previous = &entry;
  }
  if (header_end + covered == file_size) return {};
  return Error{fmt::format("{}: padded: expected {} bytes, found {}; {} bytes after the last tensor belong to no tensor", where,
                           header_end + covered, file_size, file_size - header_end - covered),
               kDownloadAgain};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string_view where) {
  const std::int64_t length = TRY(header_bytes(file, where));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, static_cast<std::size_t>(length));
  SafetensorsHeader header{.data_offset = kLengthBytes + length, .file_bytes = static_cast<std::int64_t>(file.size())};
  header.content = TRY(with_remedy(read_header(text, where), kDownloadAgain));
  std::vector<TensorEntry>& tensors = header.content.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.file_offset, a.tensor.bytes()) < std::pair(b.file_offset, b.tensor.bytes());
  });
  header.layout = check_layout(tensors, header.data_offset, header.file_bytes, where);
  std::int64_t end = 0;
  for (const TensorEntry& entry : tensors) end = std::max(end, entry.file_offset + entry.tensor.bytes());
  if (end > kMaxInt64 - header.data_offset) return header.layout.error();  // no such file can exist
  header.expected_bytes = header.data_offset + end;
  for (TensorEntry& entry : tensors) entry.file_offset += header.data_offset;
  return header;
}

Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  SafetensorsHeader header = TRY(parse_safetensors_header(file, where));
  TRY(std::move(header.layout));
  for (TensorEntry& entry : header.content.tensors) entry.tensor.data = const_cast<std::byte*>(file.data()) + entry.file_offset;
  return std::move(header.content);
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path, MappedFile file, SafetensorsContent content)
    : path_(std::move(path)), file_(std::move(file)), content_(std::move(content)), by_name_(content_.tensors.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return content_.tensors[a].name < content_.tensors[b].name; });
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile file = TRY(MappedFile::open(path));
  SafetensorsContent content = TRY(parse_safetensors(file.bytes(), path.string()));
  return SafetensorsFile(path, std::move(file), std::move(content));
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](std::uint32_t position, std::string_view wanted) {
    return content_.tensors[position].name < wanted;
  });
  if (at == by_name_.end() || content_.tensors[*at].name != name) return nullptr;
  return &content_.tensors[*at];
}

}  // namespace reckoner
