// Options that several commands share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "cli/parser_forward.h"
#include "model/kv_layout.h"
#include "ops/op.h"

namespace reckoner {

struct MachineOptions {
  std::int64_t threads = 0;  // 0: usable_cores()
  std::string precision = "fast";
  std::string kernels = "auto";
  std::string cache_type = "auto";
  std::string device = "cpu";           // "auto", "cpu", "cuda", "cuda:N"; commands without the option run on the processor
  std::string graphs = "on";            // "on", "off"
  std::string admission = "off";        // "on", "off", "again"; commands without the option do not try kernels
  std::int64_t admission_limit_s = 30;  // for a kernel that is tried
  std::int64_t ranks = 1;               // that divide the model (--tp)
  std::vector<std::string> accept;      // ids of lint errors to serve in spite of
};
// --threads, --precision, --kernels, --kv-cache-dtype and --accept; the default of --precision is what `options` says.
void add_machine_options(CLI::App& app, MachineOptions& options);

// --device, --tp, --cuda-graphs and --admission, for commands that can run on a GPU.
void add_device_options(CLI::App& app, MachineOptions& options);

void add_admission_options(CLI::App& app, MachineOptions& options);
// Hidden: the seconds after which a kernel counts as hanging.
void add_admission_limit(CLI::App& app, MachineOptions& options);

struct LimitOptions {
  std::int64_t context = 0;  // 0: chosen by choose_context()
  std::int64_t chunk = 512;  // prompt tokens a step
};
void add_context_option(CLI::App& app, LimitOptions& options);

void add_model_argument(CLI::App& app, std::string& model);

// Accepts only these values; the error lists them.
void accept_only(CLI::Option* option, std::initializer_list<const char*> values);
// Accepts only whole numbers in [low, high].
void accept_range(CLI::Option* option, std::int64_t low, std::int64_t high);

KvCacheType cache_type_from(const std::string& name);
inline Precision precision_from(const std::string& name) { return name == "exact" ? Precision::exact : Precision::fast; }

}  // namespace reckoner
