#include "machine.h"

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
// This file is compiled without ThreadSanitizer, and tells it what it must know: kernels are what it looks at.
#if RECKONER_EMULATED_RACES
#include <sanitizer/tsan_interface.h>
#endif

constinit thread_local uint3 threadIdx, blockIdx;
constinit thread_local dim3 blockDim, gridDim;

namespace reckoner::emulated {
namespace {

namespace context = boost::context;

constexpr std::size_t kWarpSize = 32;
constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::uint32_t kSharedBase = 1024;  // where a block's dynamic shared memory begins on hardware, too
constexpr std::size_t kSharedAlignment = 1024;
constexpr int kRegisters = 64 << 10, kRegistersInOne = 8;  // of a multiprocessor, and given out so many at a time

// Work that was begun, in groups.
class Later {
 public:
  void begin(std::function<void()> work) {
    publish(this);
    work_.push_back({std::move(work), groups_});
  }
  void end_group() { ++groups_; }
  void finish(std::size_t left) {
    while (!work_.empty() && work_.front().group + left < groups_) do_next();
  }
  // False if there is none.
  bool do_next() {
    if (work_.empty()) return false;
    const std::function<void()> work = std::move(work_.front().work);
    work_.pop_front();
    observe(this);
    work();
    return true;
  }

 private:
  struct Work {
    std::function<void()> work;
    std::size_t group;
  };
  std::deque<Work> work_;
  std::size_t groups_ = 0;  // that are complete
};

struct Meeting {
  unsigned mask = 0, came = 0;
  std::size_t times = 0;
  Act act = nullptr;
  void* lanes[kWarpSize] = {};
};

struct Warp {
  Meeting of_all{.mask = 0xffffffffu};

  std::deque<Meeting> meetings;  // a mask's
  Later later;

  Meeting& meeting_of(unsigned mask) {
    if (mask == of_all.mask) return of_all;
    const auto found = std::find_if(meetings.begin(), meetings.end(), [&](const Meeting& meeting) { return meeting.mask == mask; });
    return found != meetings.end() ? *found : meetings.emplace_back(Meeting{.mask = mask});
  }
};

struct Barrier {
  unsigned came = 0;
  std::size_t times = 0;
};

struct Cluster;
struct Block {
  Cluster* cluster = nullptr;
  uint3 at{};
  unsigned left = 0;       // threads that have not ended
  int free_registers = 0;  // of those that it began with
  std::vector<Warp> warps;
  Barrier barriers[16];
  unsigned char* shared = nullptr;
};
struct Cluster {
  std::vector<Block> blocks;
  unsigned left = 0;
  Barrier barrier;
};

#if RECKONER_EMULATED_RACES
void* make_watched() { return __tsan_create_fiber(0); }
void* watched_now() { return __tsan_get_current_fiber(); }
void watch(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
void forget_watched(void* fiber) { __tsan_destroy_fiber(fiber); }
#else
void* make_watched() { return nullptr; }
void* watched_now() { return nullptr; }
void watch(void*) {}
void forget_watched(void*) {}
#endif

// A fiber that runs one thread after the other.
struct Fiber {
  context::fiber fiber;
  const std::function<void()>* body = nullptr;  // null: idle
  Block* block = nullptr;
  uint3 at{};
  std::size_t number = 0;
  int lane = 0, registers = 0;
  Warp* warp = nullptr;
  Later later;
  Ready ready = nullptr;  // what it waits for, or
  const void* state = nullptr;
  const std::size_t* times = nullptr;  // that this is no longer what it was
  std::size_t before = 0;
  const char* waits_for = "";
  void* watched = make_watched();  // by ThreadSanitizer
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  const void* stack = nullptr;
#endif
};

// Stacks that nobody touches cost nothing.
struct Stacks {
  context::stack_context allocate() {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    context::stack_context stack;
    stack.size = kStackBytes;
    stack.sp = static_cast<char*>(memory) + kStackBytes;
    return stack;
  }
  void deallocate(context::stack_context& stack) { munmap(static_cast<char*>(stack.sp) - stack.size, stack.size); }
};

std::uint64_t seed() {
  const char* text = std::getenv("RECKONER_EMULATED_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// All fibers of one thread of the processor.
class Machine {
 public:
  Machine() = default;
  ~Machine() {
    ending_ = true;
    watched_main_ = watched_now();
    for (const std::unique_ptr<Fiber>& fiber : fibers_) {
      if (fiber->block != nullptr) resume(*fiber);  // it has begun
      forget_watched(fiber->watched);
    }
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void run(const Launch& launch) {
    gridDim = launch.grid, blockDim = launch.block;
    launch_ = &launch;
    const dim3 size = launch.cluster;
    for (unsigned z = 0; z < launch.grid.z; z += size.z) {
      for (unsigned y = 0; y < launch.grid.y; y += size.y) {
        for (unsigned x = 0; x < launch.grid.x; x += size.x) run_cluster(launch, {x, y, z});
      }
    }
    launch_ = nullptr;
  }

  Fiber& current() {
    if (current_ == nullptr) {
      std::fprintf(stderr, "emulated GPU: a device function was called outside a kernel\n");
      std::abort();
    }
    return *current_;
  }
  bool flip() { return (random_() & 1) != 0; }

  void yield() {
#if defined(__SANITIZE_ADDRESS__)
    Fiber& own = *current_;
    __sanitizer_start_switch_fiber(&own.fake_stack, main_stack_, main_stack_bytes_);
#endif
    watch(watched_main_);
    main_ = std::move(main_).resume();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own.fake_stack, &main_stack_, &main_stack_bytes_);
#endif
  }

  void wait_until(Ready ready, const void* state, const char* what) {
    Fiber& own = current();
    if (ready(state)) return;
    own.ready = ready, own.state = state, own.waits_for = what;
    yield();
    own.ready = nullptr;
  }

  void wait_for_change(Fiber& own, const std::size_t& times, const char* what) {
    own.times = &times, own.before = times, own.waits_for = what;
    yield();
    own.times = nullptr;
  }

  [[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "emulated GPU: %s; grid %u x %u x %u, block %u x %u x %u, seed %llu\n", what, gridDim.x, gridDim.y, gridDim.z,
                 blockDim.x, blockDim.y, blockDim.z, static_cast<unsigned long long>(seed()));
    tell_kernel();
    std::fflush(stderr);
    std::abort();
  }

 private:
  void tell_kernel() const {
    Dl_info info;
    if (launch_ == nullptr || dladdr(launch_->kernel, &info) == 0) return;
    const auto offset = static_cast<const char*>(launch_->kernel) - static_cast<const char*>(info.dli_fbase);
    std::fprintf(stderr, "  kernel: addr2line -Cfse %s 0x%zx\n", info.dli_fname, static_cast<std::size_t>(offset));
  }

  void run_cluster(const Launch& launch, uint3 first) {
    const dim3 size = launch.cluster;
    const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
    Cluster cluster;
    cluster.blocks.resize(std::size_t{size.x} * size.y * size.z);
    cluster.left = static_cast<unsigned>(cluster.blocks.size()) * threads;
    while (fibers_.size() < cluster.left) add_fiber();
    std::size_t number = 0;
    for (Block& block : cluster.blocks) {
      const auto index = static_cast<unsigned>(&block - cluster.blocks.data());
      block.cluster = &cluster;
      block.at = {first.x + index % size.x, first.y + index / size.x % size.y, first.z + index / size.x / size.y};
      block.left = threads;
      block.warps.resize((threads + kWarpSize - 1) / kWarpSize);
      // Exactly as much as was asked for, and nothing in it: AddressSanitizer sees who goes beyond.
      const std::size_t bytes = std::max<std::size_t>(launch.shared_bytes, 1);
      void* memory = nullptr;
      if (posix_memalign(&memory, kSharedAlignment, bytes) != 0) throw std::bad_alloc();
      block.shared = static_cast<unsigned char*>(memory);
      std::memset(block.shared, 0xff, bytes);
      for (unsigned thread = 0; thread < threads; ++thread) {
        Fiber& fiber = *fibers_[number++];
        fiber.body = &launch.body;
        fiber.block = &block;
        fiber.at = {thread % launch.block.x, thread / launch.block.x % launch.block.y, thread / launch.block.x / launch.block.y};
        fiber.lane = static_cast<int>(thread % kWarpSize);
        fiber.registers = kRegisters / static_cast<int>(threads) / kRegistersInOne * kRegistersInOne;
        fiber.warp = &block.warps[thread / kWarpSize];
      }
    }
    publish(&cluster);  // what was there before, and that shared memory is new
    watched_main_ = watched_now();
    run_fibers(number);
    observe(&cluster);
    for (Block& block : cluster.blocks) std::free(block.shared);
  }

  // Round after round, each in another order, until all have ended.
  void run_fibers(std::size_t count) {
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    while (!order_.empty()) {
      if (random_() % 4 == 0) mix();
      bool moved = false;
      for (const std::size_t number : order_) {
        Fiber& fiber = *fibers_[number];
        if (fiber.times != nullptr ? *fiber.times == fiber.before : fiber.ready != nullptr && !fiber.ready(fiber.state)) continue;
        moved = true;
        enter(fiber);
        resume(fiber);
      }
      std::erase_if(order_, [&](std::size_t number) { return fibers_[number]->body == nullptr; });
      if (!moved && !do_something_begun()) tell_who_waits();
    }
  }

  void mix() {
    switch (random_() % 3) {
      case 0:
        std::sort(order_.begin(), order_.end());
        break;
      case 1:
        std::sort(order_.rbegin(), order_.rend());
        break;
      default:
        std::shuffle(order_.begin(), order_.end(), random_);
    }
  }

  bool do_something_begun() {
    for (const std::size_t number : order_) {
      Fiber& fiber = *fibers_[number];
      enter(fiber);
      watch(fiber.watched);
      const bool did = fiber.later.do_next() || fiber.warp->later.do_next();
      watch(watched_main_);
      if (did) return true;
    }
    return false;
  }

  void tell_who_waits() {
    std::set<std::string> said;
    for (const std::size_t number : order_) {
      const Fiber& fiber = *fibers_[number];
      std::string line = std::string("thread waits for ") + fiber.waits_for + " in block " + std::to_string(fiber.block->at.x) + " " +
                         std::to_string(fiber.block->at.y) + " " + std::to_string(fiber.block->at.z) + ", warp " +
                         std::to_string(fiber.warp - fiber.block->warps.data());
      if (said.insert(line).second) std::fprintf(stderr, "  %s\n", line.c_str());
    }
    give_up("all threads wait for each other");
  }

  void enter(Fiber& fiber) {
    current_ = &fiber;
    threadIdx = fiber.at, blockIdx = fiber.block->at;
  }

  void resume(Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fiber.stack, kStackBytes);
#endif
    watch(fiber.watched);
    fiber.fiber = std::move(fiber.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current_ = nullptr;
  }

  void add_fiber() {
    auto owned = std::make_unique<Fiber>();
    Fiber* fiber = owned.get();
    Stacks stacks;
    const context::stack_context stack = stacks.allocate();
#if defined(__SANITIZE_ADDRESS__)
    fiber->stack = static_cast<char*>(stack.sp) - stack.size;
#endif
    fiber->number = fibers_.size();
    fiber->fiber = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack), stacks,
                                  [this, fiber](context::fiber&& main) { return live(*fiber, std::move(main)); });
    fibers_.push_back(std::move(owned));
  }

  context::fiber live(Fiber& own, context::fiber&& main) {
    main_ = std::move(main);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &main_stack_, &main_stack_bytes_);
#endif
    // Stacks that were used from the same place of their pages on would be at the same few places of the processor's caches.
    static_cast<volatile char*>(alloca(own.number % 61 * 1088 + 1))[0] = 0;
    while (!ending_) {
      observe(own.block->cluster);
      (*own.body)();
      while (own.later.do_next()) {}
      publish(own.block->cluster);
      own.body = nullptr;
      --own.block->left;
      --own.block->cluster->left;
      yield();
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, main_stack_, main_stack_bytes_);
#endif
    watch(watched_main_);
    return std::move(main_);
  }

  const Launch* launch_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::size_t> order_;
  Fiber* current_ = nullptr;
  context::fiber main_;
  void* watched_main_ = nullptr;
  bool ending_ = false;
  std::minstd_rand random_{static_cast<std::minstd_rand::result_type>(seed())};
#if defined(__SANITIZE_ADDRESS__)
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
#endif
};

constinit thread_local Machine* of_thread = nullptr;
Machine& machine() {
  if (of_thread == nullptr) [[unlikely]] {
    static thread_local Machine own;
    of_thread = &own;
  }
  return *of_thread;
}

template <class Expected>
void meet(Barrier& barrier, const Expected& expected, const char* what) {
  const std::size_t before = barrier.times;
  ++barrier.came;
  publish(&barrier);
  const auto all_came = [&] {
    if (barrier.times == before && barrier.came >= expected()) barrier.came = 0, ++barrier.times;
    return barrier.times != before;
  };
  wait_until(all_came, what);
  observe(&barrier);
}

// At once, or when somebody waits for it.
void begin(Later& later, std::function<void()> work) {
  later.begin(std::move(work));
  if (machine().flip()) {
    while (later.do_next()) {}
  }
}

}  // namespace

void run(const Launch& launch) { machine().run(launch); }

void wait_until(Ready ready, const void* state, const char* what) { machine().wait_until(ready, state, what); }
void stop(const char* what) { machine().give_up(what); }

int lane() { return machine().current().lane; }
unsigned char* shared_memory() { return machine().current().block->shared; }
unsigned char* shared_memory_of(unsigned block) { return machine().current().block->cluster->blocks.at(block).shared; }
std::uint32_t address_in_shared(const void* pointer) {
  return kSharedBase + static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - shared_memory());
}
unsigned char* shared_at(std::uint32_t address) { return shared_memory() + (address - kSharedBase); }

void publish([[maybe_unused]] void* at) {
#if RECKONER_EMULATED_RACES
  __tsan_release(at);
#endif
}
void observe([[maybe_unused]] void* at) {
#if RECKONER_EMULATED_RACES
  __tsan_acquire(at);
#endif
}

void meet_lanes(unsigned mask, void* own, Act act, Memory memory) {
  Fiber& fiber = machine().current();
  if ((mask >> fiber.lane & 1u) == 0) stop("a lane is at an instruction whose mask does not name it");
  Meeting& meeting = fiber.warp->meeting_of(mask);
  if (meeting.came == 0) meeting.act = act;
  if (meeting.act != act) stop("lanes of a warp meet at different instructions");
  meeting.came |= 1u << fiber.lane;
  meeting.lanes[fiber.lane] = own;
  if (memory == Memory::ordered) publish(&meeting);
  if (meeting.came == mask) {
    act(meeting.lanes);
    std::fill(std::begin(meeting.lanes), std::end(meeting.lanes), nullptr);
    meeting.came = 0;
    ++meeting.times;
    if (memory == Memory::ordered) publish(&meeting);  // what the act did
  } else {
    machine().wait_for_change(fiber, meeting.times, "other lanes of its warp");
  }
  if (memory == Memory::ordered) observe(&meeting);
}

void set_registers(int registers) {
  Fiber& fiber = machine().current();
  int& left = fiber.block->free_registers;
  const int more = registers - fiber.registers;
  wait_until([&] { return left >= more; }, "registers of its block");
  left -= more;
  fiber.registers = registers;
}
void meet_block(int barrier, unsigned threads) {
  Block& block = *machine().current().block;
  meet(
      block.barriers[barrier], [&] { return threads == 0 ? block.left : threads; }, "a barrier of its block");
}

void meet_cluster() {
  Cluster& cluster = *machine().current().block->cluster;
  meet(
      cluster.barrier, [&] { return cluster.left; }, "a barrier of its cluster");
}

void begin_later(std::function<void()> work) { begin(machine().current().later, std::move(work)); }
void end_group() { machine().current().later.end_group(); }
void finish_groups(std::size_t left) { machine().current().later.finish(left); }

void begin_later_in_warp(std::function<void()> work) { begin(machine().current().warp->later, std::move(work)); }
void end_group_in_warp() { machine().current().warp->later.end_group(); }
void finish_groups_in_warp(std::size_t left) { machine().current().warp->later.finish(left); }

}  // namespace reckoner::emulated
