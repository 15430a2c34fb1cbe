// Replay: one call of an op on every kernel that takes it, against the op's reference.
#pragma once

#include <string>
#include <vector>

#include "diagnose/trace/bundle.h"
#include "diagnose/trace/outputs.h"
#include "ops/kernel.h"

namespace reckoner::trace {

// Where kernels run.
struct ReplayStand {
  std::string name;  // "cpu", "cuda:0"
  DeviceInfo info;
  const Catalogue& catalogue;
  DeviceMemory* memory = nullptr;  // nullptr: the host's
};

struct ReplayRow {
  std::string kernel;  // "seen" is what the bundle says was seen
  std::string device;
  std::string refused;  // why it was not run; empty: it was
  OutputDifference difference;
};

struct ReplayReport {
  std::string op;
  Key key;
  BundleAbout about;
  std::vector<std::string> bad_inputs;  // what is not finite of what the op reads, in words
  bool reference_finite = true;
  std::vector<ReplayRow> rows;
  std::vector<std::string> wrong;  // kernels
  std::string conclusion;
};

// Key of the call: what kernels are chosen by.
Key key_of(const AnyCaptured& call);

Result<ReplayReport> replay(const Bundle& bundle, const std::vector<ReplayStand>& stands, ThreadPool& pool);

std::string replay_text(const ReplayReport& report);
std::string replay_json(const ReplayReport& report);

}  // namespace reckoner::trace
