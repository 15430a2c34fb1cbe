// What the doctor found, as one screen and as JSON.
#pragma once

#include <string>

#include "diagnose/doctor/doctor.h"

namespace reckoner {

std::string doctor_text(const doctor::Report& report, const doctor::Options& options);
std::string doctor_json(const doctor::Report& report, const doctor::Options& options);

// The command that serves what was planned.
std::string serve_command(const doctor::Report& report, const doctor::Options& options);

}  // namespace reckoner
