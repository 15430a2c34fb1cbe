// What goes to a child process that tries kernels, and what it says: JSON, one line an event.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "diagnose/admission/admit.h"

namespace reckoner::admission {

struct Job {
  std::string device = "cpu";  // or "cuda:0"
  int threads = 1;
  Shapes shapes;
  std::vector<Item> items;
};

std::string to_json(const Job& job);
Result<Job> parse_job(std::string_view text);

// The child begins with an item, or is through with one. Each is a line with its newline.
std::string begin_line(const Item& item);
std::string outcome_line(const Outcome& outcome);
Result<std::variant<Item, Outcome>> parse_line(std::string_view line);

// The same words for shapes wherever they are the same.
std::string to_text(const Shapes& shapes);

}  // namespace reckoner::admission
