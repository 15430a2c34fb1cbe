#include "base/html.h"

#include <fmt/format.h>

namespace reckoner {
namespace {

constexpr std::string_view kStyle = R"(
:root {
  color-scheme: light dark;
  --ground: #fbfaf8; --raised: #ffffff; --text: #1d1f21; --quiet: #5c6166; --line: #dcd9d3;
  --accent: #8a4b08; --bar: #e9d3b8; --mark: #2f6f8f; --bad: #a3201f; --good: #2c6e3f;
  font: 16px/1.5 system-ui, sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #17181a; --raised: #202225; --text: #e7e5e1; --quiet: #a0a6ad; --line: #373a3f;
    --accent: #f0b15f; --bar: #54432d; --mark: #7cc1e0; --bad: #ff8a80; --good: #8fd19e;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--ground); color: var(--text); }
a { color: var(--accent); }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
.quiet, figcaption, .name, th { color: var(--quiet); font-weight: normal; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: 0.75rem; margin: 1rem 0; }
.cards > div, figure { background: var(--raised); border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 0.8rem; }
.name { font-size: 0.85rem; }
.value { font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.value small { font-size: 0.8rem; color: var(--quiet); }
.bad .value, .failed { color: var(--bad); }
.failed { border: 1px solid; border-radius: 8px; padding: 0.6rem 0.8rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 0.75rem; }
figure { margin: 0; }
figcaption { font-size: 0.9rem; }
figcaption b { color: var(--text); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin-top: 0.4rem; }
.tick { font-size: 11px; fill: var(--quiet); }
.mark-label { font-size: 11px; fill: var(--mark); }
.grid { stroke: var(--line); }
.bar { fill: var(--bar); }
.curve { fill: none; stroke: var(--accent); stroke-width: 1.8; }
.area { fill: var(--bar); opacity: 0.6; }
.mark { stroke: var(--mark); stroke-dasharray: 3 3; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1.1rem 0.3rem 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; }
.numbers th:not(:first-child), .numbers td:not(:first-child) { text-align: right; white-space: nowrap; }
)";

}  // namespace

std::string escape_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string html_scroll(std::string_view label) {
  return fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", escape_html(label));
}

std::string html_page(std::string_view title, std::string_view body, std::string_view style) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escape_html(title), kStyle, style, body);
}

}  // namespace reckoner
