// A good bundle of an op (of the cases of admission), in which the input changes some bytes, shapes, names and words: either an error, or
// arguments that the op's reference can be run on without touching memory that is not theirs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "diagnose/admission/case.h"
#include "diagnose/trace/bundle.h"

namespace {

using namespace reckoner;

constexpr std::int64_t kMostBytes = 1 << 20;  // of a case that is worth the time

// Takes numbers off the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::size_t below(std::size_t count) { return count == 0 ? 0 : (byte() * 256u + byte()) % count; }
  bool done() const { return at_ >= size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

template <class Args>
void add_bundles(std::vector<trace::PackedBundle>& bundles) {
  const admission::Shapes shapes{.widths = {32},
                                 .hidden = 16,
                                 .heads = 2,
                                 .latent = 32,
                                 .rope = 8,
                                 .nope = 8,
                                 .value = 8,
                                 .index_heads = 2,
                                 .index_dim = 16,
                                 .index_top_k = 4,
                                 .head_dim = 16,
                                 .experts = 4,
                                 .cache = DType::bf16};
  for (const QuantFormat format : {QuantFormat::f32, QuantFormat::nvfp4}) {
    const auto cases = admission::cases_of(static_cast<const Args*>(nullptr), {Precision::exact, format}, shapes);
    for (const auto& make : cases) {
      const admission::Case<Args> one = make();
      trace::HostReader reader;
      const trace::Captured<Args> call = trace::captured(one.args, reader);
      trace::PackedBundle bundle = trace::pack_bundle(call, call, {{"kernel", "some"}});
      std::int64_t bytes = 0;
      for (const NamedTensor& tensor : bundle.tensors) bytes += tensor.tensor.bytes();
      bundle.memory.push_back(std::const_pointer_cast<void>(one.memory));  // weights lie in the case
      bundle.memory.push_back(call.memory);
      if (bytes <= kMostBytes) bundles.push_back(std::move(bundle));
    }
  }
}

template <class... Args>
std::vector<trace::PackedBundle> all_bundles(const PointersTo<Args...>*) {
  std::vector<trace::PackedBundle> bundles;
  (add_bundles<Args>(bundles), ...);
  return bundles;
}

// One change of the description's text: a digit or another character.
void change_text(std::string& text, Input& input) {
  constexpr char kCharacters[] = "0123456789-,:\"{}[]ae.";
  text[input.below(text.size())] = kCharacters[input.below(sizeof(kCharacters) - 1)];
}

void run_reference(const trace::AnyCaptured& call) {
  std::visit(
      [](const auto& one) {
        const auto copy = trace::copy_of(one);
        reference(copy.args);
      },
      call);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<trace::PackedBundle> bundles = all_bundles(static_cast<const AnyArgs*>(nullptr));
  if (size < 2 || size > 4096) return 0;
  Input input(data, size);
  const trace::PackedBundle& good = bundles[input.below(bundles.size())];
  SafetensorsContent content{.tensors = {}, .metadata = good.metadata};
  std::vector<std::vector<std::byte>> memory;
  for (const NamedTensor& tensor : good.tensors) {
    memory.emplace_back(tensor.tensor.data, tensor.tensor.data + tensor.tensor.bytes());
    content.tensors.push_back({tensor.name, tensor.tensor, 0});
    content.tensors.back().tensor.data = memory.back().data();
  }
  while (!input.done()) {
    const std::size_t which = input.below(content.tensors.size());
    Tensor& tensor = content.tensors[which].tensor;
    switch (input.byte() % 6) {
      case 0:
        change_text(content.metadata["reckoner.bundle"], input);
        break;
      case 1:
        std::swap(content.tensors[which].name, content.tensors[input.below(content.tensors.size())].name);
        break;
      case 2:  // fewer rows
        if (tensor.shape.rank() > 0)
          tensor = tensor.rows(0, static_cast<std::int64_t>(input.below(static_cast<std::size_t>(tensor.dim(0)) + 1)));
        break;
      case 3:
        if (tensor.dtype == DType::f32 || tensor.dtype == DType::i32) tensor.dtype = tensor.dtype == DType::f32 ? DType::i32 : DType::f32;
        break;
      case 4:
        tensor.shape = {tensor.shape.elements()};
        break;
      default:
        if (tensor.bytes() > 0) tensor.data[input.below(static_cast<std::size_t>(tensor.bytes()))] = static_cast<std::byte>(input.byte());
    }
  }
  const Result<trace::Bundle> bundle = trace::parse_bundle(content, "fuzz");
  if (!bundle) {
    CHECK(!bundle.error().what.empty());
    return 0;
  }
  run_reference(bundle->before);
  return 0;
}
