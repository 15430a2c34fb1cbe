// Bytes as a bundle, whose description is always JSON of the right form with odd contents: either an error, or arguments that the op's
// reference can be run on without touching memory that is not theirs.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "diagnose/trace/bundle.h"

namespace {

using namespace reckoner;

// Takes numbers off the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::int64_t small() { return byte() % 12; }
  bool done() const { return at_ >= size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

constexpr const char* kOps[] = {"embed",        "rms_norm",     "linear",        "linear_experts", "latent_query",
                                "latent_value", "rope_angles",  "rope_heads",    "store_latent",   "store_index_key",
                                "store_rows",   "index_select", "attend_latent", "attend_grouped", "silu_mul",
                                "add_bias",     "route",        "combine",       "gather_rows",    "nothing"};
constexpr const char* kArguments[] = {"x",
                                      "y",
                                      "add",
                                      "weight",
                                      "tokens",
                                      "rows",
                                      "gate",
                                      "up",
                                      "bias",
                                      "q",
                                      "kv",
                                      "k",
                                      "logits",
                                      "weights",
                                      "slot_of",
                                      "shared",
                                      "positions",
                                      "frequencies",
                                      "cosine",
                                      "sine",
                                      "slots.begin",
                                      "slots.tokens",
                                      "selection.counts",
                                      "selection.positions",
                                      "guard.first_bad",
                                      "guard.rms",
                                      "cache",
                                      "keys",
                                      "values",
                                      "places.positions",
                                      "places.table",
                                      "w.data",
                                      "w.scales",
                                      "table.data",
                                      "kv_b.data",
                                      "kv_b.scales",
                                      "experts.0.data",
                                      "experts.1.data"};
constexpr const char* kScalars[] = {"precision", "rows",        "nope",     "epsilon", "guard.place", "first",    "layout",
                                    "scale",     "max_context", "kv_heads", "groups",  "top_groups",  "normalise"};
constexpr const char* kFormats[] = {"F32", "BF16", "NVFP4", "FP8 (blocks of 128)"};

std::string shape_text(Input& input) {
  std::string text = "[";
  const int rank = 1 + input.byte() % 3;
  for (int axis = 0; axis < rank; ++axis) text += (axis > 0 ? "," : "") + std::to_string(1 + input.small());
  return text + "]";
}

std::string description(Input& input) {
  std::string text = std::string("{\"version\":1,\"op\":\"") + kOps[input.byte() % std::size(kOps)] + "\",\"scalars\":{";
  for (std::size_t i = 0; i < std::size(kScalars); ++i)
    text += (i > 0 ? ",\"" : "\"") + std::string(kScalars[i]) + "\":" + std::to_string(i < 2 ? input.byte() % 2 : input.small());
  text += "},\"weights\":{";
  const char* const kWeights[] = {"w", "table", "kv_b", "experts.0", "experts.1"};
  for (std::size_t i = 0; i < std::size(kWeights) - input.byte() % 2u; ++i) {
    text += (i > 0 ? ",\"" : "\"") + std::string(kWeights[i]) + "\":{\"format\":\"" + kFormats[input.byte() % std::size(kFormats)] +
            "\",\"rows\":" + std::to_string(input.small()) + ",\"cols\":" + std::to_string(input.small()) +
            ",\"scale\":1,\"first_row\":0,\"name\":\"\"}";
  }
  text += "},\"caches\":{";
  const char* const kCaches[] = {"cache", "keys", "values"};
  const char* const kTypes[] = {"F32", "BF16", "F8_E4M3"};
  for (std::size_t i = 0; i < std::size(kCaches); ++i) {
    text += (i > 0 ? ",\"" : "\"") + std::string(kCaches[i]) + "\":{\"row_elements\":" + std::to_string(input.small()) + ",\"dtype\":\"" +
            kTypes[input.byte() % 3] + "\",\"quantised_elements\":" + std::to_string(input.small()) + "}";
  }
  text += "},\"outputs\":{";
  for (std::size_t i = 0; i < std::size(kArguments); ++i) {
    text += (i > 0 ? ",\"" : "\"") + std::string(kArguments[i]) + "\":{\"dtype\":\"" + (input.byte() % 4 == 0 ? "I32" : "F32") +
            "\",\"shape\":" + shape_text(input) + "}";
  }
  return text + "},\"shared\":{" + (input.byte() % 4 == 0 ? "\"y\":\"gate\"" : "") + "},\"about\":{}}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  Input input(data, size);
  SafetensorsContent content;
  content.metadata["reckoner.bundle"] = description(input);
  std::vector<std::vector<std::byte>> memory;
  while (!input.done() && memory.size() < 64) {
    std::string name = kArguments[input.byte() % std::size(kArguments)];
    if (input.byte() % 3 == 0) name = "seen." + name;
    const DType dtypes[] = {DType::f32, DType::i32, DType::u8, DType::bf16};
    Tensor tensor{.dtype = dtypes[input.byte() % 4], .shape = {}};
    const int rank = 1 + input.byte() % 3;
    for (int axis = 0; axis < rank; ++axis) tensor.shape.push_back(input.small());
    std::vector<std::byte>& bytes = memory.emplace_back(static_cast<std::size_t>(tensor.bytes()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(input.byte() % 16);
    tensor.data = bytes.data();
    content.tensors.push_back({name, tensor, 0});
  }
  const Result<trace::Bundle> bundle = trace::parse_bundle(content, "fuzz");
  if (!bundle) {
    CHECK(!bundle.error().what.empty());
    return 0;
  }
  std::visit(
      [](const auto& call) {
        const auto copy = trace::copy_of(call);
        reference(copy.args);
      },
      bundle->before);
  return 0;
}
