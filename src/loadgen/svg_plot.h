// Plots as SVG that stands within a page, in the page's colours (classes bar, curve, area, mark, grid, tick).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace reckoner::loadgen {

// Round numbers from at or below `low` to at or above `high`, about `wanted` of them, at least two.
std::vector<double> axis_ticks(double low, double high, int wanted);

// How the values spread: bars for how many there are, a curve for the share at or below, marks at percentiles. `values` not empty.
std::string distribution_svg(std::vector<double> values, const std::vector<double>& percentiles, std::string_view title);

// One value a step, from 0 on.
std::string series_svg(const std::vector<double>& values, double step_s, std::string_view title);

}  // namespace reckoner::loadgen
