#include "ops/kernel.h"

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
void bind(const Catalogue& catalogue, const DeviceInfo& device, BoundTable& table) {
  for (int format = 0; format < kQuantFormats; ++format) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      const Key key{precision, static_cast<QuantFormat>(format)};
      const Kernel<Args>* kernel = choose_kernel(catalogue.of<Args>(), key, device);
      CHECK(kernel != nullptr, Args::kName);
      table[static_cast<std::size_t>(key.index())] = *kernel;
    }
  }
}

template <class... Args, class Tables>
void bind_all(const KernelLists<Args...>& catalogue, const DeviceInfo& device, Tables& tables) {
  (bind<Args>(catalogue, device, std::get<std::array<Kernel<Args>, Key::kCount>>(tables)), ...);
}

}  // namespace

Catalogue with_references(Catalogue catalogue) {
  add_references(catalogue);
  return catalogue;
}

Ops::Ops(const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool) : pool_(pool) { bind_all(catalogue, device, bound_); }

void Ops::begin_plan() {
  planning_ = true;
  workspace_needed_ = 0;
  calls_.clear();
}

std::vector<Ops::Call> Ops::end_plan() {
  planning_ = false;
  if (workspace_needed_ > workspace_.size_bytes()) workspace_ = Buffer(workspace_needed_);
  return std::move(calls_);
}

}  // namespace reckoner
