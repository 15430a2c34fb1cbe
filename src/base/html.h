// Pages that stand alone: reports that people keep, open without a server and send to others. No other file.
#pragma once

#include <string>
#include <string_view>

namespace reckoner {

// Text as it may stand between tags and in quoted attributes.
std::string escape_html(std::string_view text);

// A whole page. `body` is HTML; `style` is CSS behind that of all pages, which gives
//   colours (light and dark)  --ground --raised --text --quiet --line --accent --bar --mark --bad --good
//   .quiet .failed            lesser text; a box that warns
//   .cards > div              numbers side by side: .name above .value
//   .plots > figure           plots side by side; in SVG: .bar .curve .area .mark .grid .tick .mark-label
//   .numbers                  a table whose cells are right-aligned but for the first column
std::string html_page(std::string_view title, std::string_view body, std::string_view style = {});

// Begins a part that may be wider than the screen, for a table as a rule; the keyboard can scroll it. Ends with </div>.
std::string html_scroll(std::string_view label);

}  // namespace reckoner
