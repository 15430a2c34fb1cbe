// Kernels compared with their references before they serve, in a child process of this program (diagnose/admission).
#pragma once

#include "cli/session.h"
#include "diagnose/admission/admission.h"

namespace reckoner {

// Where kernels are tried: the processor, or a GPU with the library that its kernels are from.
struct AdmissionPlace {
  std::string device = "cpu";  // or "cuda:0"
  DeviceInfo info;
  std::string library = {};
  int threads = 1;
};

// Tries what `choose` chooses. Notes go to the console: what was refused, and a cache that cannot be used.
Result<admission::Admission> try_kernels(const AdmissionPlace& place, const admission::Shapes& shapes, const admission::Choose& choose,
                                         const MachineOptions& options, Console& console);

// Tries the kernels that steps of the session's model need. What is refused is named, and serves neither target() nor anything made of it.
Status admit_kernels(Session& session, const MachineOptions& options, Console& console);

}  // namespace reckoner
