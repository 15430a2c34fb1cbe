// What every caller of the bridge needs.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/bridge/reckoner_text.h"

namespace reckoner {

// One stay in the bridge. Its Rust is not instrumented: the thread sanitizer sees the memory that it copies and frees, by way of
// libc, but not the locks and atomics that order this, and would report races that are none. Nothing in other builds.
class InBridge {
 public:
  InBridge();
  ~InBridge();
  InBridge(const InBridge&) = delete;
  InBridge& operator=(const InBridge&) = delete;
};

ReckonerTextSlice bridge_slice(std::string_view text);
// Copies the bridge's bytes and frees them.
std::string take_bytes(ReckonerTextBytes bytes);
// The error of a call that failed.
Error bridge_error(ReckonerTextCode code, ReckonerTextBytes error);

}  // namespace reckoner
