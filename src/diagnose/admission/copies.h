// Copies of an op's arguments where a kernel reads them (on a device, or elsewhere on the host), between borders that show who writes
// beyond.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "ops/pages.h"
#include "quant/weight.h"
#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace reckoner::admission {

// Memory that is handed out piece by piece; all of it that is not counts as border. As floats and halves its bytes are NaN: what is read
// there shows.
class Arena {
 public:
  // nullptr: the host's memory. The device's failures are to be looked for in its status().
  Arena(std::int64_t size_bytes, DeviceMemory* memory, Stream stream);

  void reset();
  // `misalignment`: bytes beyond a multiple of 256; only the host is asked to bear it. nullptr: the arena is too small.
  std::byte* take(std::int64_t size_bytes, std::int64_t misalignment = 0);
  void copy_in(std::byte* to, const std::byte* from, std::int64_t size_bytes);
  bool on_host() const { return memory_ == nullptr; }

  // All bytes as they are now, once the device has done its work; find() says where a piece lies there.
  std::vector<std::byte> bytes();
  std::int64_t find(const std::byte* piece) const { return piece - buffer_.data(); }
  // That in `bytes` no border was written.
  bool untouched(const std::vector<std::byte>& bytes) const;

 private:
  void mark(std::int64_t first, std::int64_t end);

  Buffer buffer_;
  DeviceMemory* memory_;
  Stream stream_;
  Buffer pinned_;  // on the way to the device and back
  std::int64_t used_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken_;  // begin and end
};

// A visitor of an op's Args (ops/op.h): exchanges every pointer for one to a copy in the arena. What shares memory goes on sharing it.
class Copies {
 public:
  explicit Copies(Arena& arena) : arena_(arena) {}

  void in(const char* name, Tensor& tensor) { copy(name, tensor, Way::in); }
  void out(const char* name, Tensor& tensor) { copy(name, tensor, Way::back); }
  void inout(const char* name, Tensor& tensor) { copy(name, tensor, Way::back); }
  void weight(const char* name, Weight& weight);
  void weights(const char* name, std::span<const Weight>& weights);
  void places(TokenPlaces& places);
  void cache_in(const char* name, CacheView& cache) { copy(name, cache, Way::in); }
  void cache_out(const char* name, CacheView& cache) { copy(name, cache, Way::back); }

  enum class Way : std::uint8_t { in, back };
  struct Piece {
    const char* name;
    std::byte* host;  // where it came from
    std::byte* copy;
    std::vector<std::byte> before;
    Way way;
    std::int64_t size_bytes() const { return std::ssize(before); }
  };
  const std::vector<Piece>& pieces() const { return pieces_; }
  // That everything found a place.
  bool complete() const { return complete_; }

  // Copies what the kernel may have written back to where it came from.
  void bring_back(const std::vector<std::byte>& arena_bytes);

 private:
  void copy(const char* name, Tensor& tensor, Way way);
  void copy(const char* name, CacheView& cache, Way way);
  std::byte* copy(const char* name, const std::byte* host, std::int64_t size_bytes, Way way, std::int64_t misalignment = 0);
  std::byte* place(const std::byte* bytes, std::int64_t size_bytes, std::int64_t misalignment);

  Arena& arena_;
  std::vector<Piece> pieces_;
  std::deque<std::vector<Weight>> experts_;  // a list each
  std::int64_t pages_ = 0;                   // of a pool: one more than the highest that a token has
  bool complete_ = true;
};

}  // namespace reckoner::admission
