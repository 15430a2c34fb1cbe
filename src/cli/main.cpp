// reckoner: the program. The list of its subcommands; each is defined in the file of its name.
#include "cli/command_line.h"

int main(int argc, char** argv) {
  using namespace reckoner;
  const Subcommand subcommands[] = {kServe,   kRun,   kVerify, kInspect, kLint,    kTokenize, kQuantize,
                                    kCompare, kTrace, kReplay, kBench,   kKernels, kAdmit};
  return run_command_line(argc, argv, subcommands);
}
