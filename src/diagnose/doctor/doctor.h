// The doctor: what a machine, a checkpoint and the two together will do, before anything is loaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "diagnose/doctor/fit.h"
#include "diagnose/doctor/hardware_names.h"
#include "diagnose/doctor/host.h"
#include "diagnose/doctor/speed.h"
#include "diagnose/findings/findings.h"
#include "diagnose/lint/finding.h"

namespace reckoner::doctor {

// What steps would run on: a processor or GPUs, present or described.
struct Hardware {
  bool is_described = false;
  std::string name;  // "8x NVIDIA RTX PRO 6000 Blackwell"
  int gpus = 0;
  DeviceInfo device;                   // one of them
  std::optional<Catalogue> catalogue;  // its kernels; nothing: they are not known
  std::string no_kernels;              // then why
  std::string no_gpu;                  // why no GPU of this machine is used
  std::int64_t memory_bytes = 0;       // free for us; of a described one, all. 0: unknown
  const HardwareProfile* profile = nullptr;
  std::optional<Peaks> peaks;
};

struct Options {
  std::string model;  // as the user called it; empty: only the machine is looked at
  std::filesystem::path folder;
  int ranks = 0;  // 0: as many as there are GPUs, or fewer if only fewer can divide the model
  FitOptions fit = {};
  std::vector<std::string> accept = {};  // ids of lint errors to go on in spite of, as serve does
  std::string findings_folder = {};
};

struct KernelUse {
  std::string op;
  std::string format;  // of the weight; empty: there is none
  std::string kernel;
  std::vector<std::string> refused;  // "name: reason"
};

enum class Verdict : std::uint8_t {
  ready,       // nothing speaks against it
  doubtful,    // it works; there is something to look at first
  impossible,  // it will not work as asked
};
std::string_view name(Verdict verdict);

struct ModelFacts {
  std::string type;
  std::int64_t layers = 0;
  std::int64_t experts = 0;  // a layer; 0: dense
  std::int64_t longest = 0;  // tokens
  std::int64_t weight_bytes = 0;
  std::vector<std::string> formats;
};

struct Report {
  Hardware hardware;
  HostFacts host;
  std::optional<DiskFacts> disk;
  std::optional<lint::LintReport> lint;
  std::optional<ModelFacts> model;
  int ranks = 1;
  std::optional<Fit> fit;
  std::vector<KernelUse> kernels;  // of a step of one token and of one of many
  std::optional<SpeedBasis> speed_basis;
  std::vector<DecodeSpeed> decode;
  std::vector<PrefillSpeed> prefill;
  std::vector<findings::Finding> known;        // owns what `matches` names
  std::vector<findings::FactMatch> matches;    // that lie in this checkpoint or machine
  std::vector<findings::FactMatch> elsewhere;  // that concern other servers
  Verdict verdict = Verdict::ready;
  std::vector<std::string> problems;  // why it is impossible
  std::vector<std::string> doubts;
};

// The sum of what can be said. Errors: the findings cannot be read. What is wrong with the model is part of the report.
Result<Report> examine(Hardware hardware, const Options& options, ThreadPool& pool);

}  // namespace reckoner::doctor
