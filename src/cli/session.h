// Session: a model that a command works with, and the machine as the command's options limit it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "cli/console.h"
#include "cli/device_choice.h"
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
  DeviceInfo device;    // the processor, as far as kernels may use it
  std::string kernels;  // which serve: "cuda"; on the processor "avx512", "avx2", "scalar"
  std::unique_ptr<ThreadPool> pool;
  DeviceChoice gpu;               // memory nullptr: the processor serves
  ModelWeights gpu_weights;       // the model's, once load_weights() has put them there
  Graphs graphs = Graphs::on;     // on a GPU
  Refusals refusals;              // kernels that admit_kernels() found unfit
  lint::LintReport lint;          // of headers and tensor-wide scales
  std::vector<Setting> settings;  // what took effect of the options above, and why

  bool on_gpu() const { return gpu.memory != nullptr; }
  // What an Engine or a StepRunner is made with.
  Device target() const;
  const ModelWeights& weights() const { return on_gpu() ? gpu_weights : model->weights; }
  // Of the memory that weights and cache are in: what is free before the weights are loaded, 0 if unknown; and what those take.
  std::int64_t free_bytes() const;
  std::int64_t weight_bytes() const;
};

// Finds the model, reads its headers and metadata and checks them. Says so when the checkpoint is doubtful, when the kernels will be slow,
// or less than asked for.
Result<Session> open_session(const std::string& model, const MachineOptions& options, Console& console);

// Error: lint found errors that open_model does not refuse and that `options` do not accept. For commands that compute with the model.
Status check_accepted(const Session& session, const MachineOptions& options);

// Brings the weights into memory, the GPU's if one serves, with a progress bar; returns the seconds it took.
Result<double> load_weights(Session& session, Console& console);

}  // namespace reckoner
