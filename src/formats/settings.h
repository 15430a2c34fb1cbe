// Setting: what a model's files asked for, what took effect, and why.
#pragma once

#include <string>

namespace reckoner {

struct Setting {
  std::string name;    // "rope theta"
  std::string value;   // what took effect: "8000000"
  std::string source;  // the file and field it comes from, or "default"
  std::string note;    // why, when there was a choice; empty otherwise
};

}  // namespace reckoner
