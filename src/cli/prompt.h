// From messages, tools and template flags to a rendered prompt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"
#include "cli/parser_forward.h"
#include "text/tokenizer.h"

namespace reckoner {

struct TemplateOptions {
  std::string tools_file;
  std::string variables_json;
  bool no_think = false;
};
// --tools, --template-vars and --no-think.
void add_template_options(CLI::App& app, TemplateOptions& options);

// Messages as the chat template wants them.
class Conversation {
 public:
  void add(std::string_view role, std::string_view content);
  void add_answer(std::string_view content, std::string_view reasoning);
  void remove_last() { messages_.pop_back(); }
  bool empty() const { return messages_.empty(); }
  void clear() { messages_.clear(); }
  // A JSON array of messages as in OpenAI's chat API.
  std::string json() const;

 private:
  std::vector<std::string> messages_;  // each a JSON object
};

// The text of a JSON file that must hold an array: messages or tools. Errors name the file and where in it.
Result<std::string> read_json_array(const std::string& path);

// What a template is given besides the messages. Read once, before the first prompt.
struct TemplateInputs {
  std::string tools_json;
  std::string kwargs_json;
};
Result<TemplateInputs> read_template_inputs(const TemplateOptions& options);

Result<std::string> render(const Tokenizer& tokenizer, const std::string& messages_json, const TemplateInputs& inputs);

// Says so when --no-think changes nothing because the template does not look at it.
Status report_inert_no_think(const Tokenizer& tokenizer, const std::string& messages_json, const TemplateOptions& options,
                             Console& console);

// All of stdin, without the newline at its end.
Result<std::string> read_stdin();

}  // namespace reckoner
