#include "ops/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/format.h"

namespace reckoner {
namespace {

template <class Args>
Kernel<Args> reference_kernel() {
  // The name lives as long as the program: there is one per op.
  static const std::string name = std::string(Args::kName) + ".reference";
  return {.name = name,
          .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
          .workspace_bytes = [](const Args&, int) -> std::int64_t { return 0; },
          .run = [](const Args& args, Lane&) { reference(args); }};
}

template <class... Args>
void add_references(KernelLists<Args...>& catalogue) {
  (catalogue.template of<Args>().push_back(reference_kernel<Args>()), ...);
}

template <class Args, class BoundTable>
void bind(const Catalogue& catalogue, const DeviceInfo& device, const Refusals& refusals, BoundTable& table) {
  for (int format = 0; format < kQuantFormats; ++format) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      const Key key{precision, static_cast<QuantFormat>(format)};
      const Kernel<Args>* kernel = choose_kernel(catalogue.of<Args>(), key, device, nullptr, refusals);
      // A device may lack kernels for formats that the model does not have: only what is planned must be there.
      table[static_cast<std::size_t>(key.index())] = kernel != nullptr ? *kernel : Kernel<Args>{};
    }
  }
}

template <class... Args, class Tables>
void bind_all(const KernelLists<Args...>& catalogue, const DeviceInfo& device, const Refusals& refusals, Tables& tables) {
  (bind<Args>(catalogue, device, refusals, std::get<std::array<Kernel<Args>, Key::kCount>>(tables)), ...);
}

}  // namespace

Catalogue with_references(Catalogue catalogue) {
  add_references(catalogue);
  return catalogue;
}

const Refusal* find_refusal(const Refusals& refusals, std::string_view op, std::string_view kernel, const Key& key) {
  const auto found = std::find_if(refusals.begin(), refusals.end(), [&](const Refusal& refusal) {
    return refusal.op == op && refusal.kernel == kernel && refusal.key.index() == key.index();
  });
  return found == refusals.end() ? nullptr : &*found;
}

Ops::Ops(const Device& device, ThreadPool& pool)
    : catalogue_(device.catalogue), info_(device.info), refusals_(device.refusals), pool_(pool), memory_(device.memory) {
  bind_all(catalogue_, info_, refusals_, bound_);
  if (memory_ != nullptr) stream_ = memory_->make_stream();
}

Ops::~Ops() {
  if (memory_ != nullptr) memory_->release_stream(stream_);
}

void Ops::report_missing(std::string_view op, const Key& key, const std::string& why) {
  if (!status_.ok()) return;
  status_ = Error{fmt::format("no kernel serves {} ({}, {}) on {}:{}", op, reckoner::info(key.format).name,
                              key.precision == Precision::exact ? "exact" : "fast", info_.name, why),
                  "use --device cpu, which serves every format"};
}

void Ops::begin_plan() {
  planning_ = true;
  workspace_needed_ = 0;
  calls_.clear();
}

std::vector<Ops::Call> Ops::end_plan() {
  planning_ = false;
  if (workspace_needed_ > workspace_.size_bytes()) workspace_ = Buffer(workspace_needed_, memory_);
  return std::move(calls_);
}

}  // namespace reckoner
