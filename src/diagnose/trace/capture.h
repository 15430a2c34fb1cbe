// Captured: an op's arguments in the host's memory, with all that the op reads: tensors, cache rows of its tokens, page tables. Weights
// are not copied: they lie in the checkpoint, or wherever else they outlive this.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/trace/host_reader.h"
#include "ops/kernel.h"

namespace reckoner::trace {

// What captured arguments point to.
struct CapturedMemory {
  std::vector<Buffer> buffers;
  std::vector<std::vector<std::int32_t>> tables;  // of each token
  std::vector<const std::int32_t*> pages;
  std::deque<std::vector<Weight>> experts;  // a list each
  std::deque<std::string> names;            // of weights; nothing moves them
  std::int64_t bytes = 0;                   // without weights
};

template <class Args>
struct Captured {
  Args args;
  std::shared_ptr<CapturedMemory> memory;
};

// Which host's weight is meant by one that may lie on a device.
using HostWeight = std::function<Weight(const Weight&)>;

// Page tables of each token of a step, as far as its position needs them, read from the host or a device.
std::vector<std::vector<std::int32_t>> page_tables(const TokenPlaces& places, HostReader& reader);

// A visitor of an op's Args (ops/op.h): exchanges every pointer for one to a copy. What shares memory goes on sharing it.
class Capture {
 public:
  Capture(HostReader& reader, const HostWeight& host_weight, CapturedMemory& memory)
      : reader_(reader), host_weight_(host_weight), memory_(memory) {}

  void in(const char*, Tensor& tensor) { copy(tensor); }
  void out(const char*, Tensor& tensor) { copy(tensor); }
  void inout(const char*, Tensor& tensor) { copy(tensor); }
  void weight(const char*, Weight& weight) { weight = host_weight_(weight); }
  void weights(const char*, std::span<const Weight>& weights);
  void places(TokenPlaces& places);
  void cache_in(const char*, CacheView& cache) { copy(cache); }
  void cache_out(const char*, CacheView& cache) { copy(cache); }

 private:
  void copy(Tensor& tensor);
  void copy(CacheView& cache);

  HostReader& reader_;
  const HostWeight& host_weight_;
  CapturedMemory& memory_;
  std::map<std::pair<const std::byte*, std::int64_t>, std::byte*> copies_;
  std::vector<std::int32_t> used_pages_;  // in the order that the copies of caches have them
};

inline Weight same_weight(const Weight& weight) { return weight; }

template <class Args>
Captured<Args> captured(const Args& args, HostReader& reader, const HostWeight& host_weight = same_weight) {
  Captured<Args> result{.args = args, .memory = std::make_shared<CapturedMemory>()};
  visit(result.args, Capture(reader, host_weight, *result.memory));
  return result;
}

// Another one, to run an op on.
template <class Args>
Captured<Args> copy_of(const Captured<Args>& other) {
  HostReader reader;
  return captured(other.args, reader);
}

}  // namespace reckoner::trace
