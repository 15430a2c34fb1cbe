// Kernels that are wrong on purpose: an op's reference, and then one element of what it wrote is spoilt.
#pragma once

#include <atomic>
#include <limits>
#include <string>

#include "ops/kernel.h"

namespace reckoner {

enum class Spoil : std::uint8_t { nan, off };

// Which calls of the faulty kernel are spoilt: number `spoilt` of every `a_step` calls. Kernels are plain functions: what they are told
// lies here.
struct FaultyCalls {
  static inline std::atomic<std::int64_t> done = 0;
  static inline std::int64_t a_step = 1;
  static inline std::int64_t spoilt = 0;
  static void set(std::int64_t spoilt_, std::int64_t a_step_) {
    done = 0;
    spoilt = spoilt_;
    a_step = a_step_;
  }
};

// A visitor of an op's Args: spoils the first output that holds numbers.
class Spoiler {
 public:
  explicit Spoiler(Spoil how) : how_(how) {}
  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& tensor) {
    if (done_ || tensor.empty() || std::string_view(name) == "guard.first_bad") return;
    done_ = true;
    const std::int64_t row = tensor.dim(0) - 1;
    const std::int64_t width = tensor.shape.elements() / tensor.dim(0);
    if (tensor.dtype == DType::f32) spoil(tensor.f32()[row * width + width / 2]);
    // Integers: the last token's selection is one short.
    if (tensor.dtype == DType::i32) tensor.i32()[row * width] -= 1;
  }
  void inout(const char* name, const Tensor& tensor) { out(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces& places) { places_ = &places; }
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView& cache) {
    if (done_) return;
    done_ = true;
    const std::int64_t token = places_->positions.dim(0) - 1;
    std::byte* const row = cache.row(places_->pages[static_cast<std::size_t>(token)], places_->positions.i32()[token]);
    std::vector<float> values(static_cast<std::size_t>(cache.row_elements));
    read_row(cache, row, 0, cache.row_elements, values.data());
    spoil(values[values.size() / 2]);
    write_row(cache, row, values.data());
  }

 private:
  void spoil(float& value) const { value = how_ == Spoil::nan ? std::numeric_limits<float>::quiet_NaN() : value + 0.5f + value; }
  Spoil how_;
  bool done_ = false;
  const TokenPlaces* places_ = nullptr;
};

template <class Args, Spoil how>
void run_faulty(const Args& args, Lane&) {
  reference(args);
  if (FaultyCalls::done++ % FaultyCalls::a_step == FaultyCalls::spoilt) visit(args, Spoiler(how));
}

// The catalogue with a faulty kernel first in the list of the op; "<op>.faulty" takes every key.
template <class Args, Spoil how>
void put_faulty(Catalogue& catalogue) {
  static const std::string name = std::string(Args::kName) + ".faulty";
  auto& list = catalogue.of<Args>();
  list.insert(list.begin(), Kernel<Args>{.name = name,
                                         .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
                                         .workspace_bytes = [](const Args&, int) -> std::int64_t { return 0; },
                                         .run = run_faulty<Args, how>});
}

template <class... Args>
void put_faulty_named(Catalogue& catalogue, std::string_view op, Spoil how, const PointersTo<Args...>*) {
  ((op == Args::kName ? (how == Spoil::nan ? put_faulty<Args, Spoil::nan>(catalogue) : put_faulty<Args, Spoil::off>(catalogue)) : void()),
   ...);
}
inline Catalogue with_faulty(Catalogue catalogue, std::string_view op, Spoil how) {
  put_faulty_named(catalogue, op, how, static_cast<const AnyArgs*>(nullptr));
  return catalogue;
}

}  // namespace reckoner
