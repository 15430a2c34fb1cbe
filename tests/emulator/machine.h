// A GPU that is not there: every CUDA thread of a launch is a fiber of one thread of the processor, which runs it until it has to wait for
// others. What lies between a copy's beginning and the wait for it, and which thread comes next, hardware decides; here a seed does
// (RECKONER_EMULATED_SEED), so that what a seed finds can be found again. Threads that all wait for each other end the program with a word
// on where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// An act reads and writes what lanes gave it, in whichever thread came last: that is the instruction's doing, and no race.
#if defined(__SANITIZE_THREAD__)
#define RECKONER_NO_RACE __attribute__((no_sanitize("thread")))
#else
#define RECKONER_NO_RACE
#endif

// CUDA's own names, which kernels use.
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: CUDA's is implicit too
};
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

namespace reckoner::emulated {

struct Launch {
  dim3 grid, block, cluster;
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;  // for the word on where it is
  std::function<void()> body;    // of one thread
};

// Runs all blocks on the calling thread.
void run(const Launch& launch);

// ---- for the threads of a launch ----

// Until ready(state) says so; `what` for the word on where it is.
using Ready = bool (*)(const void* state);
void wait_until(Ready ready, const void* state, const char* what);
template <class Condition>
void wait_until(const Condition& condition, const char* what) {
  wait_until([](const void* state) { return (*static_cast<const Condition*>(state))(); }, &condition, what);
}
[[noreturn]] void stop(const char* what);

int lane();
unsigned char* shared_memory();                        // of the thread's block
unsigned char* shared_memory_of(unsigned block);       // of another one of its cluster
std::uint32_t address_in_shared(const void* pointer);  // in the block's dynamic shared memory
unsigned char* shared_at(std::uint32_t address);

// The lanes of `mask` meet; the last to come calls act(arguments of all 32 lanes, null where a lane does not take part). Most instructions
// of a warp leave it open who sees what others wrote to memory: only `ordered` ones do not.
using Act = void (*)(void* const* lanes);
enum class Memory { unordered, ordered };
void meet_lanes(unsigned mask, void* own, Act act, Memory memory = Memory::unordered);
// `threads` of the block meet at a barrier; all that have not ended, for 0.
void meet_block(int barrier, unsigned threads);
void meet_cluster();
// Registers a thread, from now on. A block begins with as many of 64 Ki as its threads can have in eights, and has no others: who wants
// more waits until others of the block have given some back.
void set_registers(int registers);
// What came before publish() is seen by who calls observe() on the same address later.
void publish(void* at);
void observe(void* at);

// What the thread began and hardware does some time later, in this order, in groups.
void begin_later(std::function<void()> work);
void end_group();
void finish_groups(std::size_t left);

// The same of a warp.
void begin_later_in_warp(std::function<void()> work);
void end_group_in_warp();
void finish_groups_in_warp(std::size_t left);

}  // namespace reckoner::emulated
