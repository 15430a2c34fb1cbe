#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/text_format.h"

namespace reckoner {

bool ProgressBar::is_due() {
  if (!console_.stderr_is_terminal() || console_.is_quiet() || Clock::now() < next_) return false;
  next_ = Clock::now() + std::chrono::milliseconds(100);
  return true;
}

void ProgressBar::show_bytes(std::int64_t done, std::int64_t total) {
  if (!is_due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  draw(done, total,
       fmt::format("{} of {}, {:.2f} GB/s", bytes_text(static_cast<double>(done)), bytes_text(static_cast<double>(total)),
                   static_cast<double>(done) / 1e9 / seconds));
}

void ProgressBar::show_count(std::int64_t done, std::int64_t total, std::string_view unit) {
  if (is_due()) draw(done, total, fmt::format("{} of {} {}", done, total, unit));
}

void ProgressBar::draw(std::int64_t done, std::int64_t total, const std::string& text) {
  constexpr std::int64_t kWidth = 30;
  const double share = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  console_.plain(fmt::format("\r{} [{:-<{}}] {:3.0f} %  {:<34}", label_, std::string(filled, '#'), kWidth, 100 * share, text));
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  console_.plain(fmt::format("\r{:{}}\r", "", label_.size() + 80));
  drawn_ = false;
}

}  // namespace reckoner
