// Copies of an op's arguments on the device, between borders that show who writes or reads beyond.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ops/pages.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace reckoner {

// Bytes on the device that are handed out one after the other; all of them count as border until they are.
class DeviceArena {
 public:
  explicit DeviceArena(std::int64_t size_bytes);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Everything becomes border again. As floats and halves the mark is a NaN: what is read there shows.
  void reset();
  std::byte* take(std::int64_t size_bytes);
  // That no border was written.
  bool untouched() const;

 private:
  std::byte* base_ = nullptr;
  std::int64_t size_bytes_ = 0, used_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken_;  // begin and end
};

// A visitor of an op's Args (ops/op.h): exchanges every pointer for one to a copy on the device. What shares memory goes on sharing it.
class DeviceCopies {
 public:
  explicit DeviceCopies(DeviceArena& arena) : arena_(arena) {}

  void in(const char*, Tensor& tensor) { copy(tensor, Way::in); }
  void out(const char*, Tensor& tensor) { copy(tensor, Way::back); }
  void inout(const char*, Tensor& tensor) { copy(tensor, Way::back); }
  void weight(const char*, Weight& weight);
  void weights(const char*, std::span<const Weight>& weights);
  void places(TokenPlaces& places);
  void cache_in(const char*, CacheView& cache) { copy(cache, Way::in); }
  void cache_out(const char*, CacheView& cache) { copy(cache, Way::back); }

  // Copies what the kernel may have written back to where it came from.
  void bring_back();

 private:
  enum class Way { in, back };
  struct Piece {
    std::byte* host;
    std::byte* device;
    std::int64_t size_bytes;
    Way way;
  };

  void copy(Tensor& tensor, Way way);
  void copy(CacheView& cache, Way way);
  std::byte* copy(const std::byte* host, std::int64_t size_bytes, Way way);

  DeviceArena& arena_;
  std::vector<Piece> pieces_;
  std::vector<Weight> experts_;
  std::int64_t pages_ = 0;  // of a pool: one more than the highest that a token has
};

}  // namespace reckoner
