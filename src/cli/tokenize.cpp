// reckoner tokenize: the tokens of a text, or a rendered chat template.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <optional>

#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/subcommand.h"
#include "cli/text_format.h"
#include "formats/model_folder.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr const char* kDescription =
    "Prints the token ids of TEXT, one a line with the piece of text that each stands for. With\n"
    "--messages it renders the chat template instead and prints the prompt that a model would get.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner tokenize models/pocket \"Define lantern.\"\n"
    "  reckoner tokenize models/pocket - < text.txt\n"
    "  reckoner tokenize models/pocket --messages messages.json --tools tools.json --ids";

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  std::string messages_file;
  TemplateOptions chat_template;
  bool ids = false;
  bool json = false;
};

Result<std::string> text_to_encode(const TokenizeOptions& options, const Tokenizer& tokenizer, Console& console) {
  if (!options.messages_file.empty()) {
    const std::string messages = TRY(read_json_array(options.messages_file));
    const TemplateInputs inputs = TRY(read_template_inputs(options.chat_template));
    TRY(report_inert_no_think(tokenizer, messages, options.chat_template, console));
    return render(tokenizer, messages, inputs);
  }
  if (options.text && *options.text != "-") return *options.text;
  if (options.text || !console.stdin_is_terminal()) return read_stdin();
  return Error{"nothing to tokenize", "give TEXT, - to read stdin, or --messages FILE"};
}

Result<std::string> table(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string lines;
  for (const TokenId id : ids) {
    const std::string piece = TRY(tokenizer.piece(id));
    lines += fmt::format("{:>7}  {}\n", id, quoted_text(piece));
  }
  return lines;
}

Result<std::string> as_json(const TokenizeOptions& options, const Tokenizer& tokenizer, const std::string& text,
                            const std::vector<TokenId>& ids) {
  json::array pieces;
  for (const TokenId id : ids) {
    const std::string piece = TRY(tokenizer.piece(id));
    pieces.emplace_back(valid_utf8(piece));
  }
  const json::object object{{options.messages_file.empty() ? "text" : "prompt", text},
                            {"ids", json::array(ids.begin(), ids.end())},
                            {"pieces", std::move(pieces)}};
  return json::serialize(object) + "\n";
}

Result<int> tokenize(const TokenizeOptions& options, Console& console) {
  const std::filesystem::path folder = TRY(resolve_model(options.model));
  const Tokenizer tokenizer = TRY(Tokenizer::load(folder));
  const std::string text = TRY(text_to_encode(options, tokenizer, console));
  const std::vector<TokenId> ids = TRY(tokenizer.encode(text));
  const bool is_chat = !options.messages_file.empty();
  if (options.json) {
    const std::string object = TRY(as_json(options, tokenizer, text, ids));
    TRY(console.print(object));
    return 0;
  }
  if (is_chat) TRY(console.print(text + "\n"));
  if (!is_chat || options.ids) {
    const std::string lines = TRY(table(tokenizer, ids));
    TRY(console.print(lines));
  }
  console.note(fmt::format("{} {}", ids.size(), ids.size() == 1 ? "token" : "tokens"));
  return 0;
}

Action add_tokenize(CLI::App& app) {
  const auto options = std::make_shared<TokenizeOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  CLI::Option* const text = app.add_option("TEXT", options->text, "The text; - reads it from stdin")->option_text(" ");
  CLI::Option* const messages = app.add_option("--messages", options->messages_file, "A JSON array of messages, as in OpenAI's API")
                                    ->option_text("FILE")
                                    ->group("Prompt");
  messages->excludes(text);
  add_template_options(app, options->chat_template);
  for (const char* name : {"--tools", "--no-think", "--template-vars"}) app.get_option(name)->needs(messages);
  app.add_flag("--ids", options->ids, "With --messages: print the tokens too")->option_text(" ")->needs(messages)->group("Output");
  app.add_flag("--json", options->json, "Print one JSON object: text or prompt, ids, pieces")->group("Output");
  return [options](Console& console) { return tokenize(*options, console); };
}

}  // namespace

const Subcommand kTokenize = {.name = "tokenize",
                              .summary = "Show the tokens of a text, or a rendered chat template",
                              .example = "reckoner tokenize models/pocket \"Define lantern.\"",
                              .add = add_tokenize};

}  // namespace reckoner
