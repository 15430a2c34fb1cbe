// ThreadPool: persistent workers for data-parallel loops. The calling thread works too.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace reckoner {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 runs everything on the calling thread. At least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(item, thread) for every item in [0, items), items handed out one after the other to whichever thread is free,
  // thread in [0, threads()). Returns when all are done. Which thread runs an item is not defined, so a result that must not depend
  // on the number of threads may depend on `item` only. One loop at a time; bodies must not throw and must not start loops.
  template <class Body>
  void parallel_for(std::int64_t items, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        items, [](void* context, std::int64_t item, int thread) { (*static_cast<Plain*>(context))(item, thread); },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using Call = void (*)(void* context, std::int64_t item, int thread);
  void run(std::int64_t items, Call call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

// Threads worth using on this machine: physical cores that this process may run on (its affinity mask, its cgroup's quota).
int usable_cores();

}  // namespace reckoner
