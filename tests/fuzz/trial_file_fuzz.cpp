// Any text as a trial file: a plan of trials or an error, never a crash; and what was read becomes commands.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "diagnose/trials/trial_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reckoner::trials;
  const auto file = parse_trial_file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz", "/");
  if (!file) return 0;
  Placeholders placeholders{.port = 1};
  for (const FactorSpec& spec : file->factors) placeholders.values.push_back(spec.baseline);
  CHECK(values_of(*file, settings_of(*file, placeholders.values)).value() == placeholders.values);
  static_cast<void>(command_for(*file, placeholders));
  static_cast<void>(environment_for(*file, placeholders));
  return 0;
}
