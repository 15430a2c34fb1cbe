// reckoner admit: the child process of admission. Tries the kernels of the job on stdin, and says of each when it begins and what came out.
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>

#include "cli/device_choice.h"
#include "cli/prompt.h"
#include "cli/subcommand.h"
#include "diagnose/admission/job.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

Result<int> admit_job(Console& console) {
  using namespace admission;
  // A kernel that hangs must not outlive whoever waits for it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string text = TRY(read_stdin());
  const Job job = TRY(parse_job(text));
  DeviceChoice gpu;
  if (job.device != "cpu") gpu = TRY(open_device(job.device));
  const Catalogue catalogue = gpu.memory != nullptr ? gpu.catalogue() : cpu_catalogue();
  ThreadPool pool(job.threads);
  const Observer observer = {.begins = [&](const Item& item) { static_cast<void>(console.print(begin_line(item))); },
                             .ends = [&](const Outcome& outcome) { static_cast<void>(console.print(outcome_line(outcome))); }};
  static_cast<void>(admit({.catalogue = catalogue, .memory = gpu.memory.get(), .pool = pool}, job.items, job.shapes, observer));
  return 0;
}

Action add_admit(CLI::App& app) {
  app.description("Tries kernels for another process of this program; of no use by itself.");
  return admit_job;
}

}  // namespace

const Subcommand kAdmit = {.name = "admit", .summary = "", .example = "", .add = add_admit};

}  // namespace reckoner
