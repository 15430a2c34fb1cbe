// Kernels that passed, remembered from one start to the next: in a file for each build of the program and its backend, device and driver.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"
#include "diagnose/admission/admit.h"

namespace reckoner::admission {

// What results hold for.
struct Identity {
  std::string program;  // build_of() the program
  std::string backend;  // build_of() the backend library; empty on the processor
  std::string device;   // name and what it can do
  std::string driver;   // empty on the processor
};

// Size and time of a file, which change with every build; empty if there is none.
std::string build_of(const std::filesystem::path& file);
std::string describe(const DeviceInfo& device);

// $XDG_CACHE_HOME/reckoner/admission or ~/.cache/reckoner/admission; empty if the environment names neither.
std::filesystem::path cache_folder();

class Passed {
 public:
  // Reads what is there. A file that is broken or of something else counts as empty; note() then says so.
  enum class Earlier : std::uint8_t { read, forget };
  Passed(const std::filesystem::path& folder, const Identity& identity, Earlier earlier = Earlier::read);

  // What a kernel was tried with is part of the question.
  bool has(const Item& item, const Shapes& shapes) const;
  double worst(const Item& item, const Shapes& shapes) const;
  void add(const Outcome& outcome, const Shapes& shapes);
  // Replaces the file as a whole. Without a folder nothing is kept.
  Status save() const;
  const std::string& note() const { return note_; }

 private:
  Status read();

  std::filesystem::path file_;
  Identity identity_;
  std::map<std::string, double> worst_;  // of each that passed
  std::string note_;
};

}  // namespace reckoner::admission
