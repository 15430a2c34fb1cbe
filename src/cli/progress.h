// ProgressBar: how much of a long job is done, on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/console.h"

namespace reckoner {

class ProgressBar {
 public:
  ProgressBar(Console& console, std::string label) : console_(console), label_(std::move(label)) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the bar, at most ten times a second, and only once the job has taken a while: short ones should not flicker.
  void show_bytes(std::int64_t done, std::int64_t total);
  void show_count(std::int64_t done, std::int64_t total, std::string_view unit);
  void clear();

 private:
  // Whether it is time to draw.
  bool is_due();
  void draw(std::int64_t done, std::int64_t total, const std::string& text);

  using Clock = std::chrono::steady_clock;
  Console& console_;
  std::string label_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + std::chrono::milliseconds(300);
  bool drawn_ = false;
};

}  // namespace reckoner
