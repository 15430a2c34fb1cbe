// Writing of bundles.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>

#include "diagnose/trace/bundle.h"
#include "diagnose/trace/scalars.h"
#include "quant/format.h"

namespace reckoner::trace {
namespace {

namespace json = boost::json;

std::int64_t scale_bytes(const Weight& w) {
  const FormatInfo& format = info(w.format);
  return (w.first_row % format.block_rows + w.rows + format.block_rows - 1) / format.block_rows * format.scale_row_bytes(w.cols);
}

json::array shape_json(const Shape& shape) {
  json::array dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

// A visitor of an op's captured Args: the tensors of the file, and what its metadata says of them.
class Pack {
 public:
  std::vector<NamedTensor> tensors;
  json::object weight_facts, caches, outputs, shared;
  std::vector<Buffer> owners;

  void in(const char* name, const Tensor& tensor) {
    if (!tensor.empty() && !is_shared(name, tensor.data)) put(name, tensor);
  }
  void out(const char* name, const Tensor& tensor) {
    if (tensor.empty()) return;
    outputs[name] = {{"dtype", reckoner::name(tensor.dtype)}, {"shape", shape_json(tensor.shape)}};
    static_cast<void>(is_shared(name, tensor.data));
  }
  void inout(const char* name, const Tensor& tensor) { in(name, tensor); }
  void weight(const char* name, const Weight& w) { put_weight(name, w); }
  void weights(const char* name, std::span<const Weight> all) {
    for (std::size_t i = 0; i < all.size(); ++i) put_weight(fmt::format("{}.{}", name, i), all[i]);
  }
  void places(const TokenPlaces& places) {
    put("places.positions", places.positions);
    const std::int64_t tokens = places.positions.dim(0);
    std::int64_t width = 1;
    for (std::int64_t t = 0; t < tokens; ++t) width = std::max<std::int64_t>(width, places.positions.i32()[t] / kPageTokens + 1);
    owners.emplace_back(tokens * width * 4);
    const Tensor table = owners.back().tensor(DType::i32, {tokens, width});
    std::fill_n(table.i32(), tokens * width, 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t count = places.positions.i32()[t] / kPageTokens + 1;
      std::copy_n(places.pages[static_cast<std::size_t>(t)], count, table.i32() + t * width);
      pages_ = std::max<std::int64_t>(pages_, 1 + *std::max_element(table.i32() + t * width, table.i32() + t * width + count));
    }
    put("places.table", table);
  }
  void cache_in(const char* name, const CacheView& cache) {
    put(name, pool_of(cache));
    caches[name] = {
        {"row_elements", cache.row_elements}, {"dtype", reckoner::name(cache.dtype)}, {"quantised_elements", cache.quantised_elements}};
  }
  void cache_out(const char* name, const CacheView& cache) { cache_in(name, cache); }
  Tensor pool_of(const CacheView& cache) const { return {.data = cache.base, .dtype = DType::u8, .shape = {pages_, cache.page_bytes}}; }
  void put(std::string name, const Tensor& tensor) { tensors.push_back({std::move(name), tensor}); }

 private:
  bool is_shared(const char* name, const std::byte* data) {
    const auto [first, added] = names_.emplace(data, name);
    if (!added) shared[name] = first->second;
    return !added;
  }
  void put_weight(const std::string& name, const Weight& w) {
    const FormatInfo& format = info(w.format);
    const auto bytes = [](const std::byte* data, std::int64_t size) {
      return Tensor{.data = const_cast<std::byte*>(data), .dtype = DType::u8, .shape = {size}};
    };
    put(name + ".data", bytes(w.data, w.rows * format.row_bytes(w.cols)));
    if (w.scales != nullptr) put(name + ".scales", bytes(scale_row(w, 0), scale_bytes(w)));
    weight_facts[name] = {
        {"format", format.name}, {"rows", w.rows}, {"cols", w.cols}, {"scale", w.scale}, {"first_row", w.first_row % format.block_rows},
        {"name", w.name}};
  }

  std::int64_t pages_ = 1;
  std::map<const std::byte*, std::string> names_;
};

// What was seen: the outputs of the arguments after the op ran.
class PackSeen {
 public:
  explicit PackSeen(Pack& pack) : pack_(pack) {}
  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& tensor) {
    if (!tensor.empty()) pack_.put(std::string("seen.") + name, tensor);
  }
  void inout(const char* name, const Tensor& tensor) { out(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char* name, const CacheView& cache) { pack_.put(std::string("seen.") + name, pack_.pool_of(cache)); }

 private:
  Pack& pack_;
};

// Experts without rows are left out: 256 experts of a layer are gigabytes, and a step of a few rows reads a few of them. `lists`: the
// members that are a list of the experts' weights.
template <class Args>
Captured<Args> without_idle(const Captured<Args>& call, std::string& kept, std::initializer_list<std::span<const Weight> Args::*> lists) {
  Captured<Args> result{.args = call.args, .memory = std::make_shared<CapturedMemory>()};
  const std::int64_t experts = call.args.slots.begin.dim(0) - 1;
  const std::int32_t* const begin = call.args.slots.begin.i32();
  std::vector<std::int32_t> begins;
  std::vector<std::size_t> used;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    if (begin[expert] == begin[expert + 1]) continue;
    begins.push_back(begin[expert]);
    used.push_back(static_cast<std::size_t>(expert));
    kept += fmt::format("{}{}", kept.empty() ? "" : " ", expert);
  }
  begins.push_back(begin[experts]);
  result.memory->buffers.emplace_back(std::ssize(begins) * 4);
  result.args.slots.begin = result.memory->buffers.back().tensor(DType::i32, {std::ssize(begins)});
  std::copy(begins.begin(), begins.end(), result.args.slots.begin.i32());
  for (const auto list : lists) {
    std::vector<Weight>& some = result.memory->experts.emplace_back();
    for (const std::size_t expert : used) some.push_back((call.args.*list)[expert]);
    result.args.*list = some;
  }
  return result;
}

// Of a table only the rows of the tokens.
Captured<EmbedArgs> with_used_rows(const Captured<EmbedArgs>& call) {
  const Weight& table = call.args.table;
  if (info(table.format).block_rows != 1) return call;
  Captured<EmbedArgs> result{.args = call.args, .memory = std::make_shared<CapturedMemory>()};
  const std::int64_t count = call.args.tokens.dim(0);
  const std::int64_t row_bytes = info(table.format).row_bytes(table.cols);
  const std::int64_t scales = table.scales == nullptr ? 0 : info(table.format).scale_row_bytes(table.cols);
  Buffer& rows = result.memory->buffers.emplace_back(std::max<std::int64_t>(1, count * (row_bytes + scales)));
  std::byte* const data = rows.data();
  Buffer& tokens = result.memory->buffers.emplace_back(count * 4);
  result.args.tokens = tokens.tensor(DType::i32, {count});
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t id = call.args.tokens.i32()[t];
    std::memcpy(data + t * row_bytes, table.data + id * row_bytes, static_cast<std::size_t>(row_bytes));
    if (scales > 0) std::memcpy(data + count * row_bytes + t * scales, scale_row(table, id), static_cast<std::size_t>(scales));
    result.args.tokens.i32()[t] = static_cast<std::int32_t>(t);
  }
  result.args.table.rows = count;
  result.args.table.first_row = 0;
  result.args.table.data = data;
  if (scales > 0) result.args.table.scales = data + count * row_bytes;
  return result;
}

// Columns [first, first + count) of a matrix.
Tensor some_columns(const Tensor& matrix, std::int64_t first, std::int64_t count, CapturedMemory& memory) {
  memory.buffers.emplace_back(matrix.dim(0) * count * 4);
  const Tensor part = memory.buffers.back().tensor(DType::f32, {matrix.dim(0), count});
  for (std::int64_t row = 0; row < matrix.dim(0); ++row)
    std::copy_n(matrix.f32() + row * matrix.dim(1) + first, count, part.f32() + row * count);
  return part;
}

// Some of the outputs of a linear layer, with the rows of the weight that make them.
Captured<LinearArgs> with_some_outputs(const Captured<LinearArgs>& call, const BundleLimits& limits) {
  constexpr std::int64_t kKept = 4096;
  const Weight& w = call.args.w;
  if (weight_bytes(w) <= limits.bytes / 2 || w.rows <= kKept) return call;
  const std::int64_t first = std::min(limits.column, w.rows - 1) / 128 * 128;  // where blocks of scales begin
  const std::int64_t count = std::min(kKept, w.rows - first);
  Captured<LinearArgs> result{.args = call.args, .memory = std::make_shared<CapturedMemory>()};
  result.args.w = row_range(w, first, count);
  result.args.y = some_columns(call.args.y, first, count, *result.memory);
  return result;
}

template <class Args>
Captured<Args> reduced(const Captured<Args>& call, std::string&, const BundleLimits&) {
  return call;
}
Captured<LinearArgs> reduced(const Captured<LinearArgs>& call, std::string&, const BundleLimits& limits) {
  return with_some_outputs(call, limits);
}
Captured<LinearExpertsArgs> reduced(const Captured<LinearExpertsArgs>& call, std::string& kept, const BundleLimits&) {
  return without_idle(call, kept, {&LinearExpertsArgs::experts});
}
Captured<GatedExpertsArgs> reduced(const Captured<GatedExpertsArgs>& call, std::string& kept, const BundleLimits&) {
  return without_idle(call, kept, {&GatedExpertsArgs::gate, &GatedExpertsArgs::up});
}
Captured<ExpertsCombineArgs> reduced(const Captured<ExpertsCombineArgs>& call, std::string& kept, const BundleLimits&) {
  return without_idle(call, kept, {&ExpertsCombineArgs::experts});
}
Captured<EmbedArgs> reduced(const Captured<EmbedArgs>& call, std::string&, const BundleLimits&) { return with_used_rows(call); }

template <class Args>
PackedBundle pack_one(const Captured<Args>& whole, const Captured<Args>& whole_after, BundleAbout about, const BundleLimits& limits) {
  std::string kept;
  const Captured<Args> before = reduced(whole, kept, limits);
  std::string same;
  const Captured<Args> after = reduced(whole_after, same, limits);
  if (!kept.empty()) about["experts"] = kept;
  const auto pack = std::make_shared<Pack>();
  visit(before.args, *pack);
  visit(after.args, PackSeen(*pack));
  json::object scalars;
  visit_scalars(before.args, [&](const char* name, const auto& value) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
      scalars[name] = static_cast<std::int64_t>(value);
    } else {
      scalars[name] = value;
    }
  });
  json::object words;
  for (const auto& [key, value] : about) words[key] = value;
  json::object object;
  object["version"] = 1;
  object["op"] = Args::kName;
  object["scalars"] = std::move(scalars);
  object["weights"] = std::move(pack->weight_facts);
  object["caches"] = std::move(pack->caches);
  object["outputs"] = std::move(pack->outputs);
  object["shared"] = std::move(pack->shared);
  object["about"] = std::move(words);
  return {
      .tensors = pack->tensors, .metadata = {{"reckoner.bundle", json::serialize(object)}}, .memory = {pack, before.memory, after.memory}};
}

}  // namespace

std::string_view op_name(const AnyCaptured& call) {
  return std::visit([](const auto& captured) { return std::remove_cvref_t<decltype(captured.args)>::kName; }, call);
}

PackedBundle pack_bundle(const AnyCaptured& before, const AnyCaptured& after, const BundleAbout& about, const BundleLimits& limits) {
  return std::visit(
      [&](const auto& call) {
        const auto* const same = std::get_if<std::remove_cvref_t<decltype(call)>>(&after);
        CHECK(same != nullptr, "two calls of different ops");
        return pack_one(call, *same, about, limits);
      },
      before);
}

Status write_bundle(const std::filesystem::path& path, const AnyCaptured& before, const AnyCaptured& after, const BundleAbout& about,
                    const BundleLimits& limits) {
  const PackedBundle bundle = pack_bundle(before, after, about, limits);
  std::int64_t bytes = 0;
  for (const NamedTensor& tensor : bundle.tensors) bytes += tensor.tensor.bytes();
  if (bytes <= limits.bytes) return write_safetensors(path, bundle.tensors, bundle.metadata);
  return Error{fmt::format("the op's inputs take {:.1f} MB, a bundle may take {:.1f} MB", static_cast<double>(bytes) / 1e6,
                           static_cast<double>(limits.bytes) / 1e6),
               "trace a shorter prompt, or raise the limit with --bundle-mb"};
}

}  // namespace reckoner::trace
