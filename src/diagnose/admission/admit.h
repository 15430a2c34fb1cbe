// admit: runs kernels on small cases against the ops' references, on the machine that they shall serve on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/admission/case.h"

namespace reckoner::admission {

// A kernel for a key of its op.
struct Item {
  std::string op;
  std::string kernel;
  Key key;

  bool operator==(const Item& other) const { return op == other.op && kernel == other.kernel && key.index() == other.key.index(); }
};

// "linear.nvfp4.avx2 (NVFP4, fast)"; ops without weights have no key to speak of.
std::string to_text(const Item& item);

struct Outcome {
  Item item;
  bool passed = false;
  double worst = 0;    // largest error found, in terms of what is allowed; of outputs that must agree to the bit 0
  std::string reason;  // of a refusal: "error 3.1e-02 where 4.0e-03 is allowed, y row 3 ([9, 160] x [33, 160]^T)"
};

// Where kernels run: memory nullptr is the host.
struct Stand {
  const Catalogue& catalogue;
  DeviceMemory* memory = nullptr;
  ThreadPool& pool;
};

struct Observer {
  std::function<void(const Item&)> begins = [](const Item&) {};
  std::function<void(const Outcome&)> ends = [](const Outcome&) {};
};

// One after the other. Ends early when the device failed: what comes after would fail with it.
std::vector<Outcome> admit(const Stand& stand, const std::vector<Item>& items, const Shapes& shapes, const Observer& observer = {});

}  // namespace reckoner::admission
