// Kernel: one implementation of one op. Catalogue: all of them, best first. Ops: those chosen for this machine, ready to be called.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/threads.h"
#include "ops/attend_grouped.h"
#include "ops/attend_latent.h"
#include "ops/experts_combine.h"
#include "ops/gated_experts.h"
#include "ops/gated_linear.h"
#include "ops/index_select.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/linear_experts.h"
#include "ops/linear_group.h"
#include "ops/probe.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rotate_and_store.h"
#include "ops/route.h"
#include "ops/rows.h"
#include "ops/store.h"
#include "tensor/device_memory.h"

namespace reckoner {

// What a kernel may use while it runs: one rank's threads, its workspace, and on a GPU its stream.
struct Lane {
  ThreadPool& pool;
  std::byte* workspace;    // at least what workspace_bytes() of the kernel asked for; aligned to 64, on a CUDA device to 256
  void* stream = nullptr;  // of a CUDA lane: a cudaStream_t, on which the kernel puts its work without waiting for it
};

// Whether a kernel can serve a key on a device; if not, why.
struct Support {
  bool yes = true;
  std::string reason = {};
  std::int64_t shared_bytes = 0;  // of a GPU's shared memory, the most that a block takes at any shape
};

template <class Args>
struct Kernel {
  std::string_view name;  // "linear.nvfp4.avx512bf16"
  Support (*supports)(const Key& key, const DeviceInfo& device);
  std::int64_t (*workspace_bytes)(const Args& args, int threads);  // shapes only: called before there is data
  void (*run)(const Args& args, Lane& lane);
};

// The vocabulary. Applies a template to each op's Args.
template <template <class...> class Template>
using ForEachOp = Template<EmbedArgs, RmsNormArgs, LinearArgs, LinearExpertsArgs, LatentQueryArgs, LatentValueArgs, RopeAnglesArgs,
                           RopeHeadsArgs, StoreLatentArgs, StoreIndexKeyArgs, StoreRowsArgs, IndexSelectArgs, AttendLatentArgs,
                           AttendGroupedArgs, SiluMulArgs, AddBiasArgs, RouteArgs, CombineArgs, GatherRowsArgs, RotateAndStoreArgs,
                           GatedLinearArgs, GatedExpertsArgs, ExpertsCombineArgs, LinearGroupArgs>;

template <class... Args>
struct KernelLists {
  std::tuple<std::vector<Kernel<Args>>...> lists;
  template <class One>
  std::vector<Kernel<One>>& of() {
    return std::get<std::vector<Kernel<One>>>(lists);
  }
  template <class One>
  const std::vector<Kernel<One>>& of() const {
    return std::get<std::vector<Kernel<One>>>(lists);
  }
};
// For each op its kernels, best first. The scalar reference stands last in every list (with_references), so that each op can be served.
using Catalogue = ForEachOp<KernelLists>;

template <class... Args>
using PointersTo = std::variant<const Args*...>;
// The arguments of a call of any op.
using AnyArgs = ForEachOp<PointersTo>;
using OpRun = OpRunOf<AnyArgs>;
using Probe = ProbeOf<AnyArgs>;

// Adds each op's reference as its last kernel.
Catalogue with_references(Catalogue catalogue);

// A kernel that may not serve a key although it says that it could: it did not match the op's reference on this machine.
struct Refusal {
  std::string op;
  std::string kernel;
  Key key;
  std::string reason;
};
using Refusals = std::vector<Refusal>;

// nullptr: not refused.
const Refusal* find_refusal(const Refusals& refusals, std::string_view op, std::string_view kernel, const Key& key);

// Whether steps of a few rows are recorded once and replayed: launching a thousand small kernels takes longer than they do.
enum class Graphs : std::uint8_t { off, on };

class Communicator;

// What steps run on: the processor (no memory of its own), or a GPU. Kernels and memory belong together.
struct Device {
  DeviceInfo info;
  Catalogue catalogue;
  DeviceMemory* memory = nullptr;  // outlives everything that is put there
  Graphs graphs = Graphs::off;
  Refusals refusals = {};
  Communicator* ranks = nullptr;  // to those that run the other parts of the model; nullptr: this runs all of it
};

// The first kernel of `list` that supports `key` on `device` and is not refused; `refused` gets "name: reason" for those before it.
template <class Args>
const Kernel<Args>* choose_kernel(const std::vector<Kernel<Args>>& list, const Key& key, const DeviceInfo& device,
                                  std::vector<std::string>* refused = nullptr, const Refusals& refusals = {}) {
  for (const Kernel<Args>& kernel : list) {
    const Support support = kernel.supports(key, device);
    const Refusal* const refusal = support.yes ? find_refusal(refusals, Args::kName, kernel.name, key) : nullptr;
    if (support.yes && refusal == nullptr) return &kernel;
    if (refused != nullptr) refused->push_back(std::string(kernel.name) + ": " + (refusal != nullptr ? refusal->reason : support.reason));
  }
  return nullptr;
}

// Why no kernel of `list` serves the key: one line a kernel.
template <class Args>
std::string why_unserved(const std::vector<Kernel<Args>>& list, const Key& key, const DeviceInfo& device, const Refusals& refusals = {}) {
  std::vector<std::string> refused;
  static_cast<void>(choose_kernel(list, key, device, &refused, refusals));
  std::string text;
  for (const std::string& line : refused) text += "\n  " + line;
  return text.empty() ? "\n  there is none" : text;
}

// Calls the kernel bound to each op and key. Bound once, for one device.
class Ops {
 public:
  // One call of an op, while planning.
  struct Call {
    std::string_view op;
    std::string_view kernel;
    Cost cost;
    Key key = {};
  };

  Ops(const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool) : Ops({.info = device, .catalogue = catalogue}, pool) {}
  Ops(const Device& device, ThreadPool& pool);
  ~Ops();
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  // Runs the op; while planning checks its arguments, notes its workspace and cost instead, and touches no data.
  template <class Args>
  void operator()(const Args& args) {
    const Kernel<Args>& kernel = std::get<Bound<Args>>(bound_)[static_cast<std::size_t>(args.key().index())];
    if (planning_) {
      plan(args, kernel);
    } else {
      CHECK(kernel.workspace_bytes(args, pool_.threads()) <= workspace_.size_bytes(), "a step that was not planned");
      Lane lane{pool_, workspace_.data(), stream_};
      if (probe != nullptr) return run_probed(args, kernel, lane);
      kernel.run(args, lane);
    }
  }

  // Whether a kernel is bound that is more than the reference. Ops that are several others in one go are called only then; else these are.
  template <class Args>
  bool serves(const Key& key) const {
    const Kernel<Args>& kernel = std::get<Bound<Args>>(bound_)[static_cast<std::size_t>(key.index())];
    return kernel.run != nullptr && !kernel.name.ends_with(".reference");
  }

  // nullptr, or who is called around each op that runs.
  Probe* probe = nullptr;
  // Where the next ops are called from, for the probe.
  OpPlace place;

  // Between these two every call is planned, not run. end_plan() makes the workspace large enough and returns the calls.
  void begin_plan();
  std::vector<Call> end_plan();
  bool planning() const { return planning_; }
  std::int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  ThreadPool& pool() { return pool_; }
  Stream stream() const { return stream_; }
  // Error: an op that was planned has no kernel on this device; says why each was refused. Never on the processor.
  const Status& status() const { return status_; }

 private:
  template <class Args>
  using Bound = std::array<Kernel<Args>, Key::kCount>;
  template <class... Args>
  using BoundOps = std::tuple<Bound<Args>...>;

  template <class Args>
  void plan(const Args& args, const Kernel<Args>& kernel) {
    const Status status = check(args);
    CHECK(status.ok(), status.ok() ? "" : status.error().what);
    if (kernel.run == nullptr)
      return report_missing(Args::kName, args.key(), why_unserved(catalogue_.of<Args>(), args.key(), info_, refusals_));
    workspace_needed_ = std::max(workspace_needed_, kernel.workspace_bytes(args, pool_.threads()));
    calls_.push_back({Args::kName, kernel.name, cost(args), args.key()});
  }

  template <class Args>
  void run_probed(const Args& args, const Kernel<Args>& kernel, Lane& lane) {
    const OpRun run{Args::kName, kernel.name, args.key(), place, &args, memory_, stream_};
    probe->before(run);
    const auto start = std::chrono::steady_clock::now();
    kernel.run(args, lane);
    if (memory_ != nullptr) memory_->synchronise(stream_);
    probe->after(run, std::chrono::steady_clock::now() - start);
  }

  void report_missing(std::string_view op, const Key& key, const std::string& why);

  Catalogue catalogue_;
  DeviceInfo info_;
  Refusals refusals_;
  ForEachOp<BoundOps> bound_;  // `run` is nullptr where no kernel serves the key
  ThreadPool& pool_;
  DeviceMemory* memory_;
  Stream stream_ = nullptr;
  Status status_;
  bool planning_ = false;
  std::int64_t workspace_needed_ = 0;
  Buffer workspace_;
  std::vector<Call> calls_;
};

}  // namespace reckoner
