#include "diagnose/admission/admit.h"

#include <fmt/format.h>

#include <algorithm>

#include "diagnose/admission/judge.h"
#include "quant/format.h"

namespace reckoner::admission {
namespace {

constexpr std::int64_t kHostArenaBytes = 32 << 20;
constexpr std::int64_t kDeviceArenaBytes = 64 << 20;

// The memory that cases run in, a stream of the device's, and what a Lane needs.
class Room {
 public:
  explicit Room(const Stand& stand)
      : memory_(stand.memory),
        stream_(memory_ == nullptr ? nullptr : memory_->make_stream()),
        arena(memory_ == nullptr ? kHostArenaBytes : kDeviceArenaBytes, memory_, stream_),
        pool(stand.pool) {}
  ~Room() {
    if (memory_ != nullptr) memory_->release_stream(stream_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  std::string failure() const {
    return memory_ == nullptr || memory_->status().ok() ? "" : "the device failed: " + memory_->status().error().what;
  }
  Lane lane(std::byte* workspace) const { return {.pool = pool, .workspace = workspace, .stream = stream_}; }

 private:
  DeviceMemory* memory_;
  Stream stream_;

 public:
  Arena arena;
  ThreadPool& pool;
};

template <class Args>
Verdict try_case(const Kernel<Args>& kernel, const Case<Args>& one, Room& room) {
  const Status valid = check(one.args);
  CHECK(valid.ok(), valid.ok() ? "" : valid.error().what);
  room.arena.reset();
  Copies copies(room.arena);
  Args args = one.args;
  visit(args, copies);
  std::byte* const workspace = room.arena.take(kernel.workspace_bytes(one.args, room.pool.threads()));
  if (!room.failure().empty()) return {.reason = room.failure()};
  if (!copies.complete() || workspace == nullptr) return {.reason = "asks for an unreasonable workspace"};
  Lane lane = room.lane(workspace);
  kernel.run(args, lane);
  reference(one.args);
  const std::vector<std::byte> bytes = room.arena.bytes();
  if (!room.failure().empty()) return {.reason = room.failure()};
  Verdict verdict;
  Judge judge(copies, room.arena, bytes, one.allowed, verdict);
  visit(one.args, judge);
  judge.look_at_the_rest();
  return verdict;
}

template <class Args>
void try_all(const Kernel<Args>& kernel, const Shapes& shapes, Room& room, Outcome& outcome) {
  for (const auto& make : cases_of(static_cast<const Args*>(nullptr), outcome.item.key, shapes)) {
    const Case<Args> one = make();
    const Verdict verdict = try_case(kernel, one, room);
    outcome.worst = std::max(outcome.worst, verdict.worst);
    if (verdict.good()) continue;
    outcome.reason = fmt::format("{} ({})", verdict.reason, one.shapes);
    return;
  }
  outcome.passed = true;
}

template <class Args>
void admit_if_named(const std::vector<Kernel<Args>>& list, const Shapes& shapes, Room& room, Outcome& outcome) {
  if (outcome.item.op != Args::kName) return;
  const auto kernel = std::find_if(list.begin(), list.end(), [&](const Kernel<Args>& k) { return k.name == outcome.item.kernel; });
  if (kernel == list.end()) {
    outcome.reason = "there is no such kernel";
  } else {
    try_all(*kernel, shapes, room, outcome);
  }
}

template <class... Args>
Outcome admit_one(const KernelLists<Args...>& catalogue, const Item& item, const Shapes& shapes, Room& room) {
  Outcome outcome{.item = item};
  (admit_if_named(catalogue.template of<Args>(), shapes, room, outcome), ...);
  return outcome;
}

}  // namespace

std::string to_text(const Item& item) {
  const bool has_key = item.key.format != QuantFormat::f32 || item.key.precision != Precision::exact;
  if (!has_key) return item.kernel;
  return fmt::format("{} ({}, {})", item.kernel, info(item.key.format).name, item.key.precision == Precision::exact ? "exact" : "fast");
}

std::vector<Outcome> admit(const Stand& stand, const std::vector<Item>& items, const Shapes& shapes, const Observer& observer) {
  Room room(stand);
  std::vector<Outcome> outcomes;
  for (const Item& item : items) {
    observer.begins(item);
    outcomes.push_back(admit_one(stand.catalogue, item, shapes, room));
    observer.ends(outcomes.back());
    if (!room.failure().empty()) break;
  }
  return outcomes;
}

}  // namespace reckoner::admission
