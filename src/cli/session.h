// Session: a model that a command works with, and the machine as the command's options limit it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "cli/console.h"
#include "cli/options.h"
#include "diagnose/lint/finding.h"
#include "model/kv_layout.h"
#include "model/loader.h"
#include "tensor/device_info.h"

namespace reckoner {

struct Session {
  std::string name;  // the model as the user called it
  std::filesystem::path folder;
  std::unique_ptr<Model> model;
  Precision precision = Precision::fast;
  std::string precision_name;
  KvCacheType cache_type = KvCacheType::automatic;
  DeviceInfo device;    // what kernels may use
  std::string kernels;  // the same as a word: "avx512", "avx2", "scalar"
  std::unique_ptr<ThreadPool> pool;
  lint::LintReport lint;          // of headers and tensor-wide scales
  std::vector<Setting> settings;  // what took effect of the options above, and why
};

// Finds the model, reads its headers and metadata and checks them. Says so when the checkpoint is doubtful, when the kernels will be slow,
// or less than asked for.
Result<Session> open_session(const std::string& model, const MachineOptions& options, Console& console);

// Error: lint found errors that open_model does not refuse and that `options` do not accept. For commands that compute with the model.
Status check_accepted(const Session& session, const MachineOptions& options);

// Brings the weights into memory, with a progress bar; returns the seconds it took.
Result<double> load_weights(const Session& session, Console& console);

}  // namespace reckoner
