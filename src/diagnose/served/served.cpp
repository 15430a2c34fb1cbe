#include "diagnose/served/served.h"

#include <algorithm>

#include "quant/format.h"

namespace reckoner {
namespace {

// What kernels would run on, and which of them may not.
struct Place {
  const DeviceInfo& device;
  const Refusals& refusals;
};

// Notes whether an op has a weight.
struct WeightFinder {
  bool found = false;
  template <class... Any>
  void in(Any&&...) {}
  template <class... Any>
  void out(Any&&...) {}
  template <class... Any>
  void inout(Any&&...) {}
  template <class... Any>
  void weight(Any&&...) {
    found = true;
  }
  template <class... Any>
  void weights(Any&&...) {
    found = true;
  }
  template <class... Any>
  void places(Any&&...) {}
  template <class... Any>
  void cache_in(Any&&...) {}
  template <class... Any>
  void cache_out(Any&&...) {}
};

template <class Args>
bool has_weight() {
  Args args;
  WeightFinder finder;
  visit(args, finder);
  return finder.found;
}

template <class Args>
Served served_by(const std::vector<Kernel<Args>>& list, const Key& key, const Place& place) {
  Served served{.op = std::string(Args::kName)};
  const Kernel<Args>* const kernel = choose_kernel(list, key, place.device, &served.refused, place.refusals);
  const bool by_parts = HasParts<Args> && (kernel == nullptr || kernel->name.ends_with(".reference"));
  served.kernel = by_parts ? kItsParts : kernel != nullptr ? std::string(kernel->name) : kNoKernel;
  if (by_parts || kernel == nullptr) return served;
  served.items.push_back({.op = served.op, .kernel = served.kernel, .key = key});
  served.shared_bytes = kernel->supports(key, place.device).shared_bytes;
  return served;
}

// Adds to the last one where everything but the format is the same.
void add(std::vector<Served>& all, Served served, std::string_view format) {
  for (Served& other : all) {
    if (other.op != served.op || other.precision != served.precision || other.kernel != served.kernel || other.refused != served.refused)
      continue;
    other.formats.emplace_back(format);
    other.shared_bytes = std::max(other.shared_bytes, served.shared_bytes);
    other.items.insert(other.items.end(), served.items.begin(), served.items.end());
    return;
  }
  served.formats.emplace_back(format);
  all.push_back(std::move(served));
}

template <class Args>
void add_op(const std::vector<Kernel<Args>>& list, const Place& place, const std::set<QuantFormat>& formats, std::vector<Served>& all) {
  if (!has_weight<Args>()) return all.push_back(served_by(list, {}, place));
  constexpr bool kHasPrecision = requires(Args args) { args.precision; }
  || requires(Args args) { args.parts; };
  for (const QuantFormat format : formats) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      if (precision == Precision::fast && !kHasPrecision) continue;
      Served served = served_by(list, {precision, format}, place);
      served.precision = precision == Precision::exact ? "exact" : "fast";
      add(all, std::move(served), info(format).name);
    }
  }
}

template <class... Args>
std::vector<Served> served_by_all(const KernelLists<Args...>& catalogue, const Place& place, const std::set<QuantFormat>& formats) {
  std::vector<Served> all;
  (add_op(catalogue.template of<Args>(), place, formats, all), ...);
  return all;
}

}  // namespace

std::vector<Served> all_served(const Catalogue& catalogue, const DeviceInfo& device, const Refusals& refusals,
                               const std::set<QuantFormat>& formats) {
  return served_by_all(catalogue, Place{device, refusals}, formats);
}

}  // namespace reckoner
