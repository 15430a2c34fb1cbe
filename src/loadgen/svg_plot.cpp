#include "loadgen/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "loadgen/summary.h"

namespace reckoner::loadgen {
namespace {

constexpr double kWidth = 440;
constexpr double kLeft = 46;
constexpr double kRight = 14;
constexpr double kPlotHeight = 150;
constexpr double kBottom = 24;
constexpr double kLabelRow = 14;
constexpr std::size_t kBins = 40;
constexpr std::size_t kCurvePoints = 200;

// From values to places in the picture.
struct Frame {
  double top = 0;
  double x_low = 0, x_high = 1;
  double y_high = 1;  // y begins at 0

  double x(double value) const { return kLeft + (value - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight); }
  double y(double value) const { return top + kPlotHeight * (1 - value / y_high); }
  double bottom() const { return top + kPlotHeight; }
  double height() const { return bottom() + kBottom; }
};

std::string open_svg(const Frame& frame, std::string_view title) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, frame.height(), title);
}

std::string x_axis(const Frame& frame, const std::vector<double>& ticks) {
  std::string text;
  for (const double tick : ticks) {
    text += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", frame.x(tick), frame.bottom(),
                        frame.bottom() + 4);
    text += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g}</text>\n", frame.x(tick),
                        frame.bottom() + 18, tick);
  }
  return text;
}

std::string y_axis(const Frame& frame, const std::vector<double>& ticks, double scale, std::string_view unit) {
  std::string text;
  for (const double tick : ticks) {
    text +=
        fmt::format("<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>", kLeft, kWidth - kRight, frame.y(tick));
    text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}{}</text>\n", kLeft - 6, frame.y(tick) + 4,
                        tick * scale, unit);
  }
  return text;
}

// `sorted` ascending.
std::string bars(const Frame& frame, const std::vector<double>& sorted) {
  std::vector<double> counts(kBins, 0.0);
  const double width = (frame.x_high - frame.x_low) / static_cast<double>(kBins);
  for (const double value : sorted) ++counts[std::min(static_cast<std::size_t>((value - frame.x_low) / width), kBins - 1)];
  const double most = *std::max_element(counts.begin(), counts.end());
  std::string text;
  for (std::size_t i = 0; i < kBins; ++i) {
    if (counts[i] == 0) continue;
    const double left = frame.x(frame.x_low + static_cast<double>(i) * width);
    const double top = frame.y(counts[i] / most * frame.y_high);
    text += fmt::format("<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", left, top,
                        (kWidth - kLeft - kRight) / static_cast<double>(kBins) - 1, frame.bottom() - top);
  }
  return text + "\n";
}

std::string curve(const Frame& frame, const std::vector<double>& sorted) {
  std::string points = fmt::format("{:.1f},{:.1f}", frame.x(frame.x_low), frame.bottom());
  const std::size_t count = std::min(kCurvePoints, sorted.size());
  points += fmt::format(" {:.1f},{:.1f}", frame.x(sorted.front()), frame.bottom());
  for (std::size_t i = 1; i <= count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count);
    points += fmt::format(" {:.1f},{:.1f}", frame.x(percentile(sorted, 100 * share)), frame.y(share));
  }
  points += fmt::format(" {:.1f},{:.1f}", frame.x(frame.x_high), frame.y(1));
  return "<polyline class=\"curve\" points=\"" + points + "\"/>\n";
}

struct Mark {
  double value = 0;
  std::string label;
  int row = 0;  // labels that would overlap stand in different rows
};

std::vector<Mark> place_marks(const Frame& frame, const std::vector<double>& sorted, std::vector<double> percentiles) {
  std::sort(percentiles.begin(), percentiles.end());
  std::vector<Mark> marks;
  std::vector<double> row_ends;
  for (const double percent : percentiles) {
    Mark mark{.value = percentile(sorted, percent), .label = fmt::format("p{} {:.4g}", percent, percentile(sorted, percent))};
    const double half = 3.4 * static_cast<double>(mark.label.size()) + 3;
    const double middle = std::clamp(frame.x(mark.value), kLeft + half, kWidth - half);
    while (static_cast<std::size_t>(mark.row) < row_ends.size() && row_ends[static_cast<std::size_t>(mark.row)] > middle - half) ++mark.row;
    if (static_cast<std::size_t>(mark.row) == row_ends.size()) row_ends.push_back(0);
    row_ends[static_cast<std::size_t>(mark.row)] = middle + half;
    marks.push_back(std::move(mark));
  }
  return marks;
}

std::string draw_marks(const Frame& frame, const std::vector<Mark>& marks) {
  std::string text;
  for (const Mark& mark : marks) {
    const double x = frame.x(mark.value);
    const double half = 3.4 * static_cast<double>(mark.label.size()) + 3;
    const double baseline = frame.top - 5 - kLabelRow * mark.row;
    text +=
        fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", x, baseline + 3, frame.bottom());
    text += fmt::format("<text class=\"mark-label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                        std::clamp(x, kLeft + half, kWidth - half), baseline, mark.label);
  }
  return text;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int wanted) {
  CHECK(wanted > 0 && std::isfinite(low) && std::isfinite(high));
  if (!(high > low)) {
    const double half = std::max(std::abs(low) * 0.05, 1e-3);
    low -= low > 0 ? std::min(half, low) : half;
    high += half;
  }
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const double last = std::ceil(high / step - 1e-9);
  for (double i = std::floor(low / step + 1e-9); i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string distribution_svg(std::vector<double> values, const std::vector<double>& percentiles, std::string_view title) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::vector<double> ticks = axis_ticks(values.front(), values.back(), 5);
  Frame frame{.x_low = ticks.front(), .x_high = ticks.back()};
  const std::vector<Mark> marks = place_marks(frame, values, percentiles);
  int rows = 1;
  for (const Mark& mark : marks) rows = std::max(rows, mark.row + 1);
  frame.top = kLabelRow * rows + 6;
  return open_svg(frame, title) + y_axis(frame, {0, 0.5, 1}, 100, " %") + bars(frame, values) + curve(frame, values) +
         draw_marks(frame, marks) + x_axis(frame, ticks) + "</svg>\n";
}

std::string series_svg(const std::vector<double>& values, double step_s, std::string_view title) {
  CHECK(!values.empty());
  const std::vector<double> y_ticks = axis_ticks(0, std::max(*std::max_element(values.begin(), values.end()), 1e-3), 3);
  const double end_s = step_s * static_cast<double>(values.size());
  Frame frame{.top = 10, .x_high = std::max(end_s, 1e-6), .y_high = y_ticks.back()};
  std::string points;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double from = frame.x(static_cast<double>(i) * step_s);
    const double to = frame.x(static_cast<double>(i + 1) * step_s);
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", from, frame.y(values[i]), to, frame.y(values[i]));
  }
  std::vector<double> x_ticks = axis_ticks(0, frame.x_high, 6);
  std::erase_if(x_ticks, [&](double tick) { return tick > frame.x_high; });
  std::string text = open_svg(frame, title) + y_axis(frame, y_ticks, 1, "");
  text += fmt::format("<polygon class=\"area\" points=\"{:.1f},{:.1f} {}{:.1f},{:.1f}\"/>\n", frame.x(0), frame.bottom(), points,
                      frame.x(frame.x_high), frame.bottom());
  return text + "<polyline class=\"curve\" points=\"" + points + "\"/>\n" + x_axis(frame, x_ticks) + "</svg>\n";
}

}  // namespace reckoner::loadgen
