// The command-line parser's types, for headers that only pass them on.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): its name, not ours
class App;
class Option;
}  // namespace CLI
