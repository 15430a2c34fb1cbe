// Session: a model that a command works with, and the machine as the command's options limit it.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "cli/console.h"
#include "cli/device_choice.h"
#include "cli/options.h"
#include "diagnose/lint/finding.h"
#include "engine/step_model.h"
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
  DeviceChoice gpu;                            // of the first rank; memory nullptr: the processor serves
  std::vector<DeviceChoice> more_gpus;         // of the other ranks
  std::vector<std::unique_ptr<Model>> shares;  // of the ranks; empty: one runs the whole model
  std::deque<ModelWeights> gpu_weights;        // of each rank, once load_weights() has put them there
  Graphs graphs = Graphs::on;                  // on a GPU
  Refusals refusals;                           // kernels that admit_kernels() found unfit
  lint::LintReport lint;                       // of headers and tensor-wide scales
  std::vector<Setting> settings;               // what took effect of the options above, and why

  bool on_gpu() const { return gpu.memory != nullptr; }
  int ranks() const { return shares.empty() ? 1 : static_cast<int>(shares.size()); }
  // What a rank runs, where, and what its runner is made with.
  Model& share(int rank = 0) const { return shares.empty() ? *model : *shares[static_cast<std::size_t>(rank)]; }
  const DeviceChoice& place(int rank = 0) const { return rank == 0 || !on_gpu() ? gpu : more_gpus[static_cast<std::size_t>(rank) - 1]; }
  Device target(int rank = 0) const;
  const ModelWeights& weights(int rank = 0) const { return on_gpu() ? gpu_weights[static_cast<std::size_t>(rank)] : share(rank).weights; }
  // Of one memory that weights and cache are in, the processor's or each GPU's: what is free before the weights are loaded, 0 if unknown;
  // what the weights take, and a token in the cache.
  std::int64_t free_bytes() const;
  std::int64_t weight_bytes() const;
  std::int64_t cache_bytes_per_token() const;
  // "cuda:0, cuda:1", or "cpu"
  std::string device_names() const;
  // "", or ", 2 ranks of 1.23 GB each"
  std::string ranks_text() const;
};

// Finds the model, reads its headers and metadata and checks them. Says so when the checkpoint is doubtful, when the kernels will be slow,
// or less than asked for.
Result<Session> open_session(const std::string& model, const MachineOptions& options, Console& console);

// Error: lint found errors that open_model does not refuse and that `options` do not accept. For commands that compute with the model.
Status check_accepted(const Session& session, const MachineOptions& options);

// Brings the weights into memory, the GPUs' if those serve, with a progress bar; returns the seconds it took.
Result<double> load_weights(Session& session, Console& console);

// The model, ready for steps: on one device, or on one a rank. Errors: something has no kernel, a device fails or has too little memory,
// GPUs cannot be connected.
Result<std::unique_ptr<StepModel>> make_step_model(const Session& session, Precision precision, const StepLimits& limits, Console& console);

}  // namespace reckoner
