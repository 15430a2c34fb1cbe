// Probe: who looks into steps, op by op. Ops calls it around each op while one is set; without one an op costs a branch more.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "ops/op.h"
#include "tensor/device_memory.h"

namespace reckoner {

// Where in a model an op is called. The forward pass writes it as it goes.
struct OpPlace {
  std::int64_t layer = -1;  // -1: outside the layers
  std::string_view block = {};
  bool operator==(const OpPlace&) const = default;
};

// One call of an op. `AnyArgs` is a variant of pointers to each op's Args (ops/kernel.h), valid during the call.
template <class AnyArgs>
struct OpRunOf {
  std::string_view op;
  std::string_view kernel;
  Key key;
  OpPlace place;
  AnyArgs args;
  DeviceMemory* memory = nullptr;  // where the tensors lie; nullptr: in the host's memory
  Stream stream = nullptr;         // what the op runs on
};

template <class AnyArgs>
class ProbeOf {
 public:
  virtual ~ProbeOf() = default;
  // What the op will read is there; on a device only when its stream is done.
  virtual void before(const OpRunOf<AnyArgs>&) {}
  // The op has run, and its device's stream is done.
  virtual void after(const OpRunOf<AnyArgs>& run, std::chrono::nanoseconds took) = 0;
};

}  // namespace reckoner
