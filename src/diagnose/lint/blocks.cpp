// Block scales and weights: each tensor whole, or a piece of it.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>

#include "diagnose/lint/values.h"
#include "quant/resolve.h"

namespace reckoner::lint {
namespace {

constexpr std::int64_t kChunk = std::int64_t{64} << 10;     // of scales at a time
constexpr std::int64_t kDataChunk = std::int64_t{1} << 20;  // of weights at a time
constexpr std::int64_t kSmallestPiece = 512;
constexpr std::int64_t kDataPiece = 4096;

// What was found in one module.
struct Facts {
  std::int64_t looked = 0;   // scales
  std::int64_t invalid = 0;  // NaN, infinite, negative; zero where no weights tell
  std::int64_t first_invalid = 0;
  std::string invalid_value;
  std::int64_t zero = 0;  // over weights that are not
  std::int64_t first_zero = 0;
  std::int64_t denormal = 0;
  std::optional<float> no_power_of_two = {};
  std::int64_t nan_codes = 0;
  std::int64_t first_nan_code = 0;
  bool all_zero = false;
  bool unreadable = false;
};

bool is_fp8(Storage storage) {
  return storage == Storage::fp8_block || storage == Storage::fp8_channel || storage == Storage::fp8_tensor || storage == Storage::mxfp8;
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5f;
}

// The same place in every run, another one in every tensor.
std::int64_t place_in(const LintTensor& tensor, std::int64_t piece, std::int64_t element) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char letter : tensor.name) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  const std::int64_t places = (tensor.bytes - piece) / element + 1;
  return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(places)) * element;
}

class Look {
 public:
  Look(const ValueFiles& files, const LintModule& module, std::int64_t piece) : files_(files), module_(module), piece_(piece) {}

  Facts take(bool deep) {
    if (const LintTensor* scales = module_.block_scales(); scales != nullptr && scales->whole) look_at_scales(*scales, deep);
    const LintTensor* data = module_.data();
    if (data == nullptr || !data->whole) return facts_;
    if (data->bytes >= kDataPiece) facts_.all_zero = looks_zero(*data);
    if (deep && is_fp8(module_.storage)) find_nan_codes(*data);
    return facts_;
  }
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  bool read(const LintTensor& tensor, std::int64_t at, std::int64_t count) {
    buffer_.resize(static_cast<std::size_t>(count));
    bytes_read_ += count;
    const bool whole = files_.read(tensor, at, buffer_);
    facts_.unreadable |= !whole;
    return whole;
  }

  void look_at_scales(const LintTensor& scales, bool deep) {
    const std::int64_t element = size_bytes(scales.dtype);
    if (element > 4 || scales.dtype == DType::i32 || scales.dtype == DType::u32) return;  // no format has such scales
    const std::int64_t count = deep ? scales.bytes : std::min(scales.bytes, std::max(element, piece_ / element * element));
    const std::int64_t begin = place_in(scales, count, element);
    for (std::int64_t at = begin; at < begin + count; at += kChunk) {
      if (!read(scales, at, std::min(kChunk, begin + count - at))) return;
      look_at_chunk(scales, at / element, static_cast<std::int64_t>(buffer_.size()) / element);
    }
  }

  void look_at_chunk(const LintTensor& scales, std::int64_t first, std::int64_t count) {
    const Tensor chunk{.data = buffer_.data(), .dtype = scales.dtype, .shape = {count}};
    std::vector<std::int64_t> zeros;
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = element_as_f32(chunk, i);
      if (value == 0) zeros.push_back(first + i);
      if (std::isnan(value) || std::isinf(value) || value < 0) invalid(first + i, value);
      if (value > 0 && value < FLT_MIN && scales.dtype == DType::f32) ++facts_.denormal;
      if (!facts_.no_power_of_two && std::isfinite(value) && value > 0 && !is_power_of_two(value)) facts_.no_power_of_two = value;
    }
    facts_.looked += count;
    if (!zeros.empty()) look_below(zeros);
  }

  void invalid(std::int64_t index, float value) {
    if (facts_.invalid++ > 0) return;
    facts_.first_invalid = index;
    facts_.invalid_value = std::isnan(value) ? "NaN" : fmt::format("{}", value);
  }

  // The weights under scales of zero: where they are zero as well, nothing is lost. In a tensor full of zeros the first ones tell.
  void look_below(const std::vector<std::int64_t>& zeros) {
    constexpr std::size_t kMost = 16;
    const LintTensor* data = module_.data();
    if (data == nullptr || !data->whole) return;
    for (std::size_t i = 0; i < std::min(zeros.size(), kMost); ++i) {
      const auto [at, count, mask] = weights_of(*data, zeros[i]);
      if (count <= 0 || at + count > data->bytes || !read(*data, at, count)) continue;
      const auto is_set = [mask = mask](std::byte byte) { return (byte & mask) != std::byte{0}; };
      if (std::any_of(buffer_.begin(), buffer_.end(), is_set) && facts_.zero++ == 0) facts_.first_zero = zeros[i];
    }
  }

  struct Piece {
    std::int64_t at;
    std::int64_t count;
    std::byte mask;  // without signs
  };
  // The first bytes of the weights that a scale belongs to.
  Piece weights_of(const LintTensor& data, std::int64_t scale) const {
    const std::int64_t rows = data.shape.rank() == 2 ? data.shape[0] : 1;
    const std::int64_t row_bytes = data.bytes / std::max<std::int64_t>(rows, 1);
    const LintTensor& scales = *module_.block_scales();
    const std::int64_t columns = scales.shape.rank() == 2 ? scales.shape[1] : 1;
    switch (module_.storage) {
      case Storage::nvfp4:
      case Storage::nvfp4_packed:
        return {scale * 8, 8, std::byte{0x77}};
      case Storage::int4:
        return {scale * 16, 16, std::byte{0xff}};
      case Storage::fp8_channel:
        return {scale * row_bytes, std::min<std::int64_t>(row_bytes, kDataPiece), std::byte{0x7f}};
      case Storage::fp8_block:
        return {scale / columns * 128 * row_bytes + scale % columns * 128, std::min<std::int64_t>(128, row_bytes - scale % columns * 128),
                std::byte{0x7f}};
      default:
        return {0, 0, std::byte{0}};
    }
  }

  bool is_zero(const LintTensor& data, std::int64_t at, std::int64_t count) {
    return read(data, at, count) && std::all_of(buffer_.begin(), buffer_.end(), [](std::byte byte) { return byte == std::byte{0}; });
  }

  bool looks_zero(const LintTensor& data) {
    const std::int64_t count = std::min(piece_, kDataPiece);
    if (!is_zero(data, place_in(data, count, 1), count)) return false;
    constexpr std::int64_t kPlaces = 8;  // small ones: a file full of zeros must not cost more than one that is not
    for (std::int64_t i = 0; i < kPlaces; ++i) {
      if (!is_zero(data, (data.bytes - kSmallestPiece) * i / (kPlaces - 1), kSmallestPiece)) return false;
    }
    return true;
  }

  void find_nan_codes(const LintTensor& data) {
    for (std::int64_t at = 0; at < data.bytes; at += kDataChunk) {
      if (!read(data, at, std::min(kDataChunk, data.bytes - at))) return;
      for (std::size_t i = 0; i < buffer_.size(); ++i) {
        if ((buffer_[i] & std::byte{0x7f}) == std::byte{0x7f} && facts_.nan_codes++ == 0)
          facts_.first_nan_code = at + static_cast<std::int64_t>(i);
      }
    }
  }

  const ValueFiles& files_;
  const LintModule& module_;
  std::int64_t piece_;
  Facts facts_ = {};
  std::vector<std::byte> buffer_;
  std::int64_t bytes_read_ = 0;
};

std::string place(const LintTensor& scales, std::int64_t index) {
  const std::int64_t columns = scales.shape.rank() == 2 ? scales.shape[1] : 1;
  return fmt::format("row {}, block {}", index / columns, index % columns);
}

void report_facts(const LintModule& module, const Facts& facts, LintReport& report) {
  const LintTensor* scales = module.block_scales();
  const auto add = [&](std::string_view id, const LintTensor& tensor, std::string what) {
    report.add(id, {where(tensor), std::move(what), module.layer, module.expert});
  };
  if (facts.invalid > 0)
    add("block-scale-invalid", *scales,
        fmt::format("{} at {}; {} of {} scales looked at", facts.invalid_value, place(*scales, facts.first_invalid), facts.invalid,
                    facts.looked));
  if (facts.zero > 0)
    add("block-scale-zero", *scales,
        fmt::format("0 at {}, over weights that are not zero; {} of {} scales looked at", place(*scales, facts.first_zero), facts.zero,
                    facts.looked));
  if (facts.denormal > 0) add("scale-denormal", *scales, fmt::format("{} of {} block scales looked at", facts.denormal, facts.looked));
  if (facts.all_zero)
    add("tensor-all-zero", *module.data(),
        fmt::format("{} {}: zeros wherever looked", name(module.data()->dtype), module.data()->shape.to_string()));
  if (facts.nan_codes > 0)
    add("fp8-nan", *module.data(), fmt::format("{} codes; the first at element {}", facts.nan_codes, facts.first_nan_code));
  if (facts.unreadable)
    report.add("file-unreadable", {module.data() != nullptr ? module.data()->file->name : module.name, "a part of it cannot be read"});
}

// What FP8 block scales are, against what the metadata says they are.
void report_powers_of_two(const LintInput& input, const std::vector<const LintModule*>& modules, const std::vector<Facts>& facts,
                          LintReport& report) {
  std::int64_t powers = 0;
  std::int64_t others = 0;
  const LintModule* example = nullptr;
  float value = 0;
  const bool claimed = input.quant.scale_fmt == "ue8m0";
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const LintTensor* scales = modules[i]->block_scales();
    if (modules[i]->storage != Storage::fp8_block || facts[i].looked == 0 || scales->dtype == DType::f8_e8m0) continue;
    if (!facts[i].no_power_of_two) {
      ++powers;
      continue;
    }
    if (others++ == 0) example = modules[i];
    if (example == modules[i]) value = *facts[i].no_power_of_two;
    if (claimed)
      report.add("ue8m0-not-so", {where(*scales), fmt::format("scale_fmt says ue8m0; a scale is {}", *facts[i].no_power_of_two),
                                  modules[i]->layer, modules[i]->expert});
  }
  if (claimed || powers + others == 0) return;
  if (others == 0)
    return report.add("ue8m0-unclaimed",
                      {"FP8 block scales", fmt::format("of {} tensors, all scales looked at are powers of two", powers)});
  report.add("fp8-scales-arbitrary",
             {where(*example->block_scales()), fmt::format("e.g. {}; {} of {} tensors have such scales", value, others, powers + others)});
}

std::int64_t deep_bytes(const LintModule& module) {
  const LintTensor* scales = module.block_scales();
  return (scales == nullptr ? 0 : scales->bytes) + (is_fp8(module.storage) && module.data() != nullptr ? module.data()->bytes : 0);
}

}  // namespace

std::int64_t check_values(const LintInput& input, const LintOptions& options, ThreadPool& pool, LintReport& report) {
  std::vector<const LintModule*> modules;
  std::int64_t pieces = 1;
  std::int64_t total = 0;
  for (const LintModule& module : input.modules) {
    const LintTensor* data = module.data();
    const bool has_data = data != nullptr && data->bytes >= kDataPiece;
    if (!has_data && module.block_scales() == nullptr) continue;
    modules.push_back(&module);
    pieces += (has_data ? 1 : 0) + (module.block_scales() != nullptr ? 1 : 0);
    total += deep_bytes(module);
  }
  const std::int64_t piece = std::clamp(options.sample_bytes / pieces, kSmallestPiece, kChunk);
  const bool deep = options.depth == LintDepth::deep;
  const ValueFiles files(input);
  std::vector<Facts> facts(modules.size());
  std::atomic<std::int64_t> read = 0;
  std::atomic<std::int64_t> done = 0;
  pool.parallel_for(static_cast<std::int64_t>(modules.size()), [&](std::int64_t item, int thread) {
    const LintModule& module = *modules[static_cast<std::size_t>(item)];
    Look look(files, module, piece);
    facts[static_cast<std::size_t>(item)] = look.take(deep);
    read += look.bytes_read();
    done += deep_bytes(module);
    if (thread == 0 && deep && options.progress) options.progress(done, total);
  });
  for (std::size_t i = 0; i < modules.size(); ++i) report_facts(*modules[i], facts[i], report);
  report_powers_of_two(input, modules, facts, report);
  return read;
}

}  // namespace reckoner::lint
