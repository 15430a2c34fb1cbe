// RankThreads: a thread for each rank, all of which do the same thing at the same time. The caller is rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace reckoner {

class RankThreads {
 public:
  explicit RankThreads(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls body(rank) on each rank's thread, always the same one for a rank. Returns when all have returned.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run([](void* context, int rank) { (*static_cast<Plain*>(context))(rank); }, const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using Call = void (*)(void* context, int rank);
  void run(Call call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reckoner
