// Grammars in llguidance's variant of Lark, for what grammar.h takes: tool calls as a model writes them, and parts that they are made of.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace reckoner {

struct ToolSignature {
  std::string name;
  std::string parameters_json;  // the JSON schema of the arguments; empty: none given
};

enum class CallCount { one, one_or_more };

struct CallGrammarOptions {
  OutputFormat format = OutputFormat::plain;
  std::span<const ToolSignature> tools;  // at least one; each name once
  CallCount count = CallCount::one_or_more;
  std::string answer = {};  // what may stand in place of calls: the right side of a rule; empty: nothing
};

// Calls of the tools, in the model's own form, with arguments that keep to the tools' schemas: the properties in the schema's order,
// those that are not required optional, none that the schema does not name (unless it names none). Where arguments are text (GLM,
// DeepSeek-V3.2), of what a schema demands of strings enum, const and length hold, and pattern and format do not.
// Errors: the format has no calls; a schema is no object.
Result<std::string> call_grammar(const Tokenizer& tokenizer, const CallGrammarOptions& options);

// Right sides of rules: the text itself; one of some texts, none of them empty; JSON of a schema, or any object for "".
std::string lark_text(std::string_view text);
std::string lark_choice(std::span<const std::string> texts);
Result<std::string> lark_json(std::string_view schema);

}  // namespace reckoner
