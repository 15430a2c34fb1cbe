// The marks around calls, by format.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/output_parser.h"

namespace reckoner {

struct CallSyntax {
  std::string_view section_open = {};  // before a list of calls; empty: there is none
  std::string_view section_close = {};
  std::string_view call_open = {};  // followed by the call's head: its name and what marks that
  std::string_view call_close = {};
  std::string_view head_end = {};  // ends the head; in GLM's calls a parameter or call_close does
  // Arguments as text; without these marks they are one JSON object.
  std::string_view parameter_open = {};  // followed by the parameter's head: its name and what marks that
  std::string_view value_open = {};      // ends that
  std::string_view value_close = {};

  bool has_parameters() const { return !parameter_open.empty(); }
};

const CallSyntax& call_syntax(OutputFormat format);

// What a call's head says.
struct CallHead {
  std::string name;
  std::string id = {};  // empty: the format has none
};

enum class HeadState { incomplete, complete, none };  // none: this is no call
struct HeadReading {
  HeadState state = HeadState::incomplete;
  CallHead head = {};
  std::size_t size_bytes = 0;  // of the head with its end mark; what follows belongs to the arguments
};

// Reads what stands behind call_open. `text` is one byte longer than at the last call, which said incomplete.
HeadReading read_call_head(OutputFormat format, std::string_view text);

enum class ValueKind { by_schema, text, json };
struct ParameterHead {
  std::string name;
  ValueKind kind = ValueKind::by_schema;
};
// Reads what stands between parameter_open and value_open.
std::optional<ParameterHead> read_parameter_head(OutputFormat format, std::string_view text);

}  // namespace reckoner
