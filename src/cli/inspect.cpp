// reckoner inspect: what is in a checkpoint, and what memory it needs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/inspect_report.h"
#include "cli/options.h"
#include "cli/subcommand.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Says what is in a checkpoint and what memory serving it takes, from its headers and metadata;\n"
    "the weights are not read. Missing, unknown and misshapen tensors are errors that name them.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner inspect models/pocket\n"
    "  reckoner inspect models/pocket --context 4096 --precision exact\n"
    "  reckoner inspect models/pocket --tensors --json";

struct InspectOptions {
  std::string model;
  MachineOptions machine;
  LimitOptions limits;
  bool tensors = false;
  bool json = false;
};

Result<int> inspect(const InspectOptions& options, Console& console) {
  const Session session = TRY(open_session(options.model, options.machine, console));
  const Inventory inventory = take_inventory(*session.model);
  const MemoryNeeds memory = TRY(memory_needs(session, options.limits));
  const ListTensors list = options.tensors ? ListTensors::yes : ListTensors::no;
  TRY(console.print(options.json ? inspect_json(session, inventory, memory, list) : inspect_text(session, inventory, memory, list)));
  return 0;
}

Action add_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  app.add_flag("--tensors", options->tensors, "List every tensor of the checkpoint too")->group("Output");
  app.add_flag("--json", options->json, "Print one JSON object")->group("Output");
  add_machine_options(app, options->machine);
  add_context_option(app, options->limits);
  return [options](Console& console) { return inspect(*options, console); };
}

}  // namespace

const Subcommand kInspect = {.name = "inspect",
                             .summary = "Say what is in a checkpoint and what memory it needs",
                             .example = "reckoner inspect models/pocket",
                             .add = add_inspect};

}  // namespace reckoner
