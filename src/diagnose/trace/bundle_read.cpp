// Reading of bundles: bytes from anybody.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>

#include "base/json.h"
#include "diagnose/trace/bundle.h"
#include "diagnose/trace/scalars.h"
#include "quant/format.h"

namespace reckoner::trace {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;  // of any dimension or scalar
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
constexpr std::int64_t kMostOutputBytes = std::int64_t{1} << 33;
constexpr std::int64_t kMostContext = std::int64_t{1} << 22;
constexpr std::size_t kMostExperts = 4096;
constexpr const char* kRemedy = "the file is damaged, or of another version: write the bundle again";

struct Source {
  const SafetensorsContent& content;
  std::string where;
  JsonNode root;

  Error error(const std::string& what) const { return {where + ": " + what, kRemedy}; }
  const Tensor* find(const std::string& name) const {
    const auto found =
        std::find_if(content.tensors.begin(), content.tensors.end(), [&](const TensorEntry& entry) { return entry.name == name; });
    return found == content.tensors.end() ? nullptr : &found->tensor;
  }
  // The member of a member: outputs.y; nothing where it is not there.
  Result<std::optional<JsonNode>> member(const char* object, const std::string& name) const {
    const JsonNode node = TRY(root.required(object));
    return node.optional(name);
  }
};

Result<Shape> shape_from(const JsonNode& node) {
  const std::vector<JsonNode> dims = TRY(node.as_array());
  if (dims.size() > Shape::kMaxRank) return node.unexpected("at most four dimensions");
  Shape shape;
  std::int64_t elements = 1;
  for (const JsonNode& dim : dims) {
    const std::int64_t value = TRY(dim.as_int64(1, kMost));
    if (elements > kMostBytes / value) return node.unexpected("a tensor that fits into memory");
    elements *= value;
    shape.push_back(value);
  }
  return shape;
}

Result<DType> dtype_from(const JsonNode& object) {
  const JsonNode node = TRY(object.required("dtype"));
  const std::string text = TRY(node.as_string());
  const std::optional<DType> dtype = dtype_from_name(text);
  if (!dtype) return node.unexpected("a dtype");
  return *dtype;
}

// A visitor of an op's empty Args, which fills them. The first error stays.
class Unpack {
 public:
  Unpack(const Source& source, CapturedMemory& memory) : source_(source), memory_(memory) {}
  Status status;

  void in(const char* name, Tensor& tensor) {
    run([&] { return take(name, tensor); });
  }
  void out(const char* name, Tensor& tensor) {
    run([&] { return make(name, tensor); });
  }
  void inout(const char* name, Tensor& tensor) { in(name, tensor); }
  void weight(const char* name, Weight& w) {
    run([&] { return take_weight(name, w); });
  }
  void weights(const char* name, std::span<const Weight>& all) {
    run([&] { return take_experts(name, all); });
  }
  void places(TokenPlaces& places) {
    run([&] { return take_places(places); });
  }
  void cache_in(const char* name, CacheView& cache) {
    run([&] { return take_cache(name, cache); });
  }
  void cache_out(const char* name, CacheView& cache) { cache_in(name, cache); }

 private:
  template <class Step>
  void run(const Step& step) {
    if (status.ok()) status = step();
  }

  // Aligned memory of our own: kernels write, and read floats.
  Tensor copied(const Tensor& tensor) {
    memory_.buffers.emplace_back(std::max<std::int64_t>(1, tensor.bytes()));
    Tensor copy = tensor;
    copy.data = memory_.buffers.back().data();
    std::memcpy(copy.data, tensor.data, static_cast<std::size_t>(tensor.bytes()));
    return copy;
  }

  // The argument whose memory this one shares, if it does; it came before.
  Result<const Tensor*> shared(const char* name) const {
    const std::optional<JsonNode> node = TRY(source_.member("shared", name));
    if (!node) return static_cast<const Tensor*>(nullptr);
    const std::string other = TRY(node->as_string());
    const auto found = tensors_.find(other);
    if (found == tensors_.end()) return node->unexpected("the name of an earlier argument");
    return &found->second;
  }

  Status take(const char* name, Tensor& tensor) {
    const Tensor* const other = TRY(shared(name));
    const Tensor* const stored = other != nullptr ? nullptr : source_.find(name);
    if (other != nullptr) tensor = *other;
    if (stored != nullptr) {
      if (stored->dtype != DType::f32 && stored->dtype != DType::i32) return source_.error(fmt::format("{}: expected F32 or I32", name));
      if (stored->shape.elements() < 1) return source_.error(fmt::format("{}: is empty", name));
      tensor = copied(*stored);
    }
    if (!tensor.empty()) tensors_[name] = tensor;
    return {};
  }

  Status make(const char* name, Tensor& tensor) {
    const std::optional<JsonNode> node = TRY(source_.member("outputs", name));
    if (!node) return {};
    const DType dtype = TRY(dtype_from(*node));
    const JsonNode dims = TRY(node->required("shape"));
    const Shape shape = TRY(shape_from(dims));
    if (dtype != DType::f32 && dtype != DType::i32) return node->unexpected("F32 or I32");
    const Tensor* const other = TRY(shared(name));
    if (other != nullptr) {
      if (other->dtype != dtype || other->shape != shape) return node->unexpected("the shape of what it shares its memory with");
      tensor = *other;
    } else {
      // An output is as large as something that the file holds: nobody makes us take memory by words alone.
      if (shape.elements() * 4 > std::min(stored_bytes() * 4096, kMostOutputBytes))
        return node->unexpected("an output in proportion to the inputs");
      memory_.buffers.emplace_back(shape.elements() * 4);
      tensor = memory_.buffers.back().tensor(dtype, shape);
      std::memset(tensor.data, 0, static_cast<std::size_t>(tensor.bytes()));
    }
    tensors_[name] = tensor;
    return {};
  }

  std::int64_t stored_bytes() const {
    std::int64_t bytes = 1;
    for (const TensorEntry& entry : source_.content.tensors) bytes += entry.tensor.bytes();
    return bytes;
  }

  Status take_weight(const std::string& name, Weight& w) {
    const std::optional<JsonNode> node = TRY(source_.member("weights", name));
    const Tensor* const data = source_.find(name + ".data");
    if (!node || data == nullptr) return source_.error(fmt::format("weight '{}': missing", name));
    const JsonNode format_node = TRY(node->required("format"));
    const std::string format_name = TRY(format_node.as_string());
    const auto format = std::find_if(formats().begin(), formats().end(), [&](const FormatInfo& f) { return f.name == format_name; });
    if (format == formats().end()) return format_node.unexpected("a weight format");
    const JsonNode rows = TRY(node->required("rows"));
    const JsonNode cols = TRY(node->required("cols"));
    const JsonNode scale = TRY(node->required("scale"));
    const JsonNode first = TRY(node->required("first_row"));
    w.format = format->format;
    w.rows = TRY(rows.as_int64(1, kMost));
    w.cols = TRY(cols.as_int64(1, kMost));
    const double factor = TRY(scale.as_float());
    w.scale = static_cast<float>(factor);
    w.first_row = TRY(first.as_int64(0, format->block_rows - 1));
    if (w.cols % format->cols_multiple != 0) return cols.unexpected(fmt::format("a multiple of {}", format->cols_multiple));
    const std::int64_t row_bytes = format->row_bytes(w.cols);
    if (data->bytes() % row_bytes != 0 || data->bytes() / row_bytes != w.rows)
      return source_.error(fmt::format("{}.data: expected {} rows of {} bytes, found {} bytes", name, w.rows, row_bytes, data->bytes()));
    w.data = data->data;
    const JsonNode module = TRY(node->required("name"));
    std::string text = TRY(module.as_string());
    w.name = memory_.names.emplace_back(std::move(text));
    const std::int64_t scale_row_bytes = format->scale_row_bytes == nullptr ? 0 : format->scale_row_bytes(w.cols);
    if (scale_row_bytes == 0) return {};
    const Tensor* const scales = source_.find(name + ".scales");
    const std::int64_t scale_rows = (w.first_row + w.rows + format->block_rows - 1) / format->block_rows;
    if (scales == nullptr || scales->bytes() != scale_rows * scale_row_bytes)
      return source_.error(fmt::format("{}.scales: expected {} bytes", name, scale_rows * scale_row_bytes));
    w.scales = scales->data;
    return {};
  }

  Status take_experts(const std::string& name, std::span<const Weight>& all) {
    const JsonNode weights = TRY(source_.root.required("weights"));
    const auto entries = TRY(weights.as_object());
    const auto count = static_cast<std::size_t>(
        std::count_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first.starts_with(name + "."); }));
    if (count == 0 || count > kMostExperts) return weights.unexpected("one to 4096 experts");
    std::vector<Weight>& experts = memory_.experts.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) TRY(take_weight(name + "." + std::to_string(i), experts[i]));
    all = experts;
    return {};
  }

  Status take_places(TokenPlaces& places) {
    const Tensor* const positions = source_.find("places.positions");
    const Tensor* const table = source_.find("places.table");
    const bool fits = positions != nullptr && table != nullptr && positions->dtype == DType::i32 && table->dtype == DType::i32 &&
                      positions->shape.rank() == 1 && table->shape.rank() == 2 && positions->dim(0) == table->dim(0) &&
                      positions->dim(0) > 0 && table->dim(1) > 0;
    if (!fits) return source_.error("places: expected I32 positions [tokens] and table [tokens, pages]");
    places.positions = copied(*positions);
    const Tensor pages = copied(*table);
    for (std::int64_t t = 0; t < pages.dim(0); ++t) {
      const std::int32_t position = places.positions.i32()[t];
      if (position < 0 || position / kPageTokens >= pages.dim(1))
        return source_.error(fmt::format("places.positions: token {} stands outside of its page table", t));
      const std::int32_t* const first = pages.i32() + t * pages.dim(1);
      memory_.tables.emplace_back(first, first + position / kPageTokens + 1);
      const auto [low, high] = std::minmax_element(memory_.tables.back().begin(), memory_.tables.back().end());
      if (*low < 0) return source_.error("places.table: a negative page");
      highest_page_ = std::max<std::int64_t>(highest_page_, *high);
    }
    for (const std::vector<std::int32_t>& one : memory_.tables) memory_.pages.push_back(one.data());
    places.pages = memory_.pages;
    return {};
  }

  Status take_cache(const char* name, CacheView& cache) {
    const std::optional<JsonNode> node = TRY(source_.member("caches", name));
    const Tensor* const pool = source_.find(name);
    if (!node || pool == nullptr) return source_.error(fmt::format("cache '{}': missing", name));
    const JsonNode width = TRY(node->required("row_elements"));
    const JsonNode quantised = TRY(node->required("quantised_elements"));
    cache.row_elements = TRY(width.as_int64(1, 1 << 24));
    cache.dtype = TRY(dtype_from(*node));
    cache.quantised_elements = TRY(quantised.as_int64(0, cache.row_elements));
    if (cache.dtype != DType::f32 && cache.dtype != DType::bf16 && cache.dtype != DType::f8_e4m3)
      return node->unexpected("a cache of F32, BF16 or F8_E4M3");
    cache.page_bytes = kPageTokens * cache.row_bytes();
    if (pool->bytes() % cache.page_bytes != 0 || pool->bytes() / cache.page_bytes <= highest_page_)
      return source_.error(fmt::format("cache '{}': expected whole pages of {} bytes, more than {} of them, found {} bytes", name,
                                       cache.page_bytes, highest_page_, pool->bytes()));
    cache.base = copied(*pool).data;
    return {};
  }

  const Source& source_;
  CapturedMemory& memory_;
  std::map<std::string, Tensor> tensors_;
  std::int64_t highest_page_ = 0;
};

template <class Args>
Status read_scalars(const Source& source, Args& args) {
  Status status;
  visit_scalars(args, [&](const char* name, auto& value) {
    if (!status.ok()) return;
    status = [&]() -> Status {
      using Value = std::remove_cvref_t<decltype(value)>;
      const std::optional<JsonNode> node = TRY(source.member("scalars", name));
      if (!node) return source.error(fmt::format("scalars: '{}' is missing", name));
      if constexpr (std::is_enum_v<Value>) {
        const std::int64_t number = TRY(node->as_int64(0, 1));  // every enumeration here has two
        value = static_cast<Value>(number);
      } else if constexpr (std::is_same_v<Value, float>) {
        const double number = TRY(node->as_float());
        value = static_cast<float>(number);
      } else {
        const std::int64_t number = TRY(node->as_int64(std::string_view(name) == "guard.place" ? -1 : 0, kMost - 1));
        value = static_cast<Value>(number);
      }
      return {};
    }();
  });
  return status;
}

// Puts what was seen over the outputs.
class TakeSeen {
 public:
  explicit TakeSeen(const Source& source) : source_(source) {}
  Status status;
  void in(const char*, Tensor&) {}
  void out(const char* name, Tensor& tensor) {
    if (!tensor.empty()) put(name, tensor.data, tensor.bytes());
  }
  void inout(const char* name, Tensor& tensor) { out(name, tensor); }
  void weight(const char*, Weight&) {}
  void weights(const char*, std::span<const Weight>&) {}
  void places(TokenPlaces&) {}
  void cache_in(const char*, CacheView&) {}
  void cache_out(const char* name, CacheView& cache) {
    const Tensor* const pool = source_.find(name);
    put(name, cache.base, pool == nullptr ? 0 : pool->bytes());
  }

 private:
  void put(const char* name, std::byte* to, std::int64_t bytes) {
    const Tensor* const seen = source_.find(std::string("seen.") + name);
    if (seen == nullptr || seen->bytes() != bytes) {
      if (status.ok()) status = source_.error(fmt::format("seen.{}: expected {} bytes", name, bytes));
      return;
    }
    std::memcpy(to, seen->data, static_cast<std::size_t>(bytes));
  }
  const Source& source_;
};

Result<BundleAbout> about_of(const Source& source) {
  BundleAbout about;
  const JsonNode node = TRY(source.root.required("about"));
  const auto entries = TRY(node.as_object());
  for (const auto& [key, value] : entries) {
    std::string text = TRY(value.as_string());
    about[key] = std::move(text);
  }
  return about;
}

template <class Args>
Result<Bundle> bundle_of(const Source& source) {
  Captured<Args> call{.args = {}, .memory = std::make_shared<CapturedMemory>()};
  TRY(read_scalars(source, call.args));  // first: how many weights a group has is one of them
  if constexpr (std::is_same_v<Args, LinearGroupArgs>) {
    if (call.args.count < 1 || call.args.count > LinearGroupArgs::kMostParts) return source.error("count: expected one to four weights");
  }
  Unpack unpack(source, *call.memory);
  visit(call.args, unpack);
  TRY(std::move(unpack.status));
  if constexpr (requires { call.args.max_context; }) {
    if (call.args.max_context < 1 || call.args.max_context > kMostContext) return source.error("max_context: is out of range");
  }
  Bundle bundle{.before = call, .seen = call, .about = {}, .file = {}};
  TRY(check_indices(bundle.before));
  Captured<Args> seen = copy_of(call);
  TakeSeen take(source);
  visit(seen.args, take);
  TRY(std::move(take.status));
  bundle.seen = std::move(seen);
  bundle.about = TRY(about_of(source));
  return bundle;
}

template <class... Args>
Result<Bundle> bundle_named(const Source& source, const std::string& op, const PointersTo<Args...>*) {
  std::optional<Result<Bundle>> bundle;
  static_cast<void>(((op == Args::kName && (bundle.emplace(bundle_of<Args>(source)), true)) || ...));
  if (bundle) return *std::move(bundle);
  return source.error(fmt::format("there is no op '{}'", op));
}

}  // namespace

Result<Bundle> parse_bundle(const SafetensorsContent& content, std::string_view where) {
  const auto text = content.metadata.find("reckoner.bundle");
  if (text == content.metadata.end())
    return Error{fmt::format("{}: no bundle: its metadata has no 'reckoner.bundle'", where), "give a file that `reckoner trace` wrote"};
  const JsonDocument document = TRY(parse_json(text->second, fmt::format("{}: bundle", where)));
  const Source source{.content = content, .where = std::string(where), .root = document.root()};
  const JsonNode version = TRY(source.root.required("version"));
  static_cast<void>(TRY(version.as_int64(1, 1)));
  const JsonNode op = TRY(source.root.required("op"));
  const std::string name = TRY(op.as_string());
  return bundle_named(source, name, static_cast<const AnyArgs*>(nullptr));
}

Result<Bundle> read_bundle(const std::filesystem::path& path) {
  auto file = std::make_shared<SafetensorsFile>(TRY(SafetensorsFile::open(path)));
  const SafetensorsContent content{.tensors = file->tensors(), .metadata = file->metadata()};
  Bundle bundle = TRY(parse_bundle(content, path.string()));
  bundle.file = std::move(file);
  return bundle;
}

}  // namespace reckoner::trace
