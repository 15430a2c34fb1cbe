// Text to token ids and back, and from a chat request to its prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The bridge's handles (text/bridge/reckoner_text.h).
struct ReckonerTextTokenizer;
struct ReckonerTextStream;

namespace reckoner {

using TokenId = std::uint32_t;

// Whether encode() adds what the tokenizer puts around a text, e.g. a beginning-of-text token. A rendered chat template
// has its special tokens already.
enum class AddSpecialTokens { no, yes };

// Whether decoded text leaves out tokens such as <|user|>.
enum class SpecialTokens { skip, keep };

// Whether the prompt ends with the opening of the assistant's next message.
enum class GenerationPrompt { none, add };

// What prompts are made with.
enum class PromptFormat {
  none,           // the folder has no chat template: apply_chat_template fails
  chat_template,  // a Jinja template
  native,         // the encoding that the model ships as a program in place of a template
};

// A token that tokenizer_config.json names.
struct NamedToken {
  std::string text;
  std::optional<TokenId> id;  // none: the vocabulary has no such token, so that one of the files is wrong
};

// What a chat template is given. The order of keys in the JSON texts is the order in which the template sees them.
struct ChatPrompt {
  std::string messages_json;     // array of messages as in OpenAI's chat API
  std::string tools_json = {};   // array of tools as in OpenAI's chat API; empty, "null" or "[]": none
  std::string kwargs_json = {};  // object: further variables of the template, e.g. {"enable_thinking": false}; may be empty
  GenerationPrompt generation_prompt = GenerationPrompt::add;
};

// The tokenizer and chat template of one model folder. Move-only; const functions may be called from any number of threads
// at once. Nothing here uses the network.
class Tokenizer {
 public:
  // Loads tokenizer.json (or Kimi's tiktoken.model, or vocab.json with merges.txt), and the chat template from
  // chat_template.jinja or tokenizer_config.json. Without a template, a DeepSeek-V3.2 (by its config.json) has its prompts
  // encoded as the program does that it ships instead. A folder with neither loads; apply_chat_template then fails.
  // Errors, each naming the file: none of those files is there; one cannot be read or parsed; a tiktoken vocabulary is not
  // Kimi's (how it splits words stands in no data file); the template has a syntax error (with its line).
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  // The same from the contents of a tokenizer.json and, unless empty, of a chat template.
  static Result<Tokenizer> from_memory(std::string_view tokenizer_json, std::string_view chat_template = {});

  // Special tokens written in the text, e.g. "<|user|>", become their ids. Error: `text` is not UTF-8.
  Result<std::vector<TokenId>> encode(std::string_view text, AddSpecialTokens add_special_tokens = AddSpecialTokens::no) const;

  // Bytes that are not UTF-8 become U+FFFD. Ids outside the vocabulary give no text in tokenizer.json vocabularies and an
  // error in tiktoken ones.
  Result<std::string> decode(std::span<const TokenId> ids, SpecialTokens special_tokens = SpecialTokens::keep) const;

  // The bytes that `id` stands for on its own; they need not be whole characters. Error: no such id.
  Result<std::string> piece(TokenId id) const;

  // One more than the largest id, added tokens included. A model's logits can be wider than this.
  std::size_t vocab_size() const;
  // Whether the token was added to the vocabulary proper, as <|user|> and <think> are.
  bool is_added(TokenId id) const;
  // Tokens of the vocabulary proper, without the added ones.
  std::size_t base_vocab_size() const;

  // The id of a token by its string as the vocabulary spells it ("<|user|>"; in a byte-level vocabulary a leading space is
  // spelled U+0120), if there is one.
  std::optional<TokenId> token_id(std::string_view token) const;

  // The tokens that tokenizer_config.json gives as bos_token and eos_token, if it does. A model may end its answers with
  // others: generation_config.json says which.
  std::optional<NamedToken> bos_token() const;
  std::optional<NamedToken> eos_token() const;

  PromptFormat prompt_format() const;
  // The template's file or the encoding's name, for a person; empty for PromptFormat::none.
  std::string prompt_source() const;
  // The text of the chat template; empty unless that is the format.
  std::string chat_template() const;

  // Renders the chat template as transformers does, or the model's own encoding. A tool call's `arguments` that are the JSON
  // text of an object, as OpenAI's clients send them, are given to the template as that object; to one that fails on it, as
  // the text. DeepSeek-V3.2's encoding knows two kwargs, `thinking` and, meaning the same, `enable_thinking`; unless given,
  // the model answers without reasoning.
  //
  // Errors: a JSON text does not parse; the folder has no template; the template or encoding refuses the messages (a
  // template with its file and line).
  Result<std::string> apply_chat_template(const ChatPrompt& prompt) const;

 private:
  std::optional<NamedToken> config_token(int which) const;

  friend class GrammarFactory;
  friend class TextStream;
  struct Free {
    void operator()(ReckonerTextTokenizer* handle) const;
  };
  explicit Tokenizer(ReckonerTextTokenizer* handle) : handle_(handle) {}

  std::unique_ptr<ReckonerTextTokenizer, Free> handle_;
};

struct TextStreamOptions {
  std::vector<std::string> stop_strings = {};  // none empty
  SpecialTokens special_tokens = SpecialTokens::skip;
};

// What one step of a stream made final.
struct TextPiece {
  std::string text;                                      // whole characters; often empty
  std::optional<std::size_t> stopped_by = std::nullopt;  // which of the stop strings ended the stream
};

// Generated tokens to text, one at a time. Never gives half a character, nor a stop string or what follows it; text that
// may yet become a stop string is held back. The pieces together are what decode() gives for all the tokens, up to the stop
// string. Move-only, for one thread at a time; may outlive its tokenizer.
class TextStream {
 public:
  // Error: a stop string is empty or not UTF-8.
  static Result<TextStream> open(const Tokenizer& tokenizer, const TextStreamOptions& options = {});

  // Takes the next token. Once stopped, every further step is empty and names the stop string again.
  // Errors: the stream was finished; (tiktoken vocabularies) no such id.
  Result<TextPiece> push(TokenId id);

  // Ends the stream: gives what was held back, with U+FFFD for half a character. A second call gives nothing.
  Result<TextPiece> finish();

 private:
  struct Free {
    void operator()(ReckonerTextStream* handle) const;
  };
  explicit TextStream(ReckonerTextStream* handle) : handle_(handle) {}

  std::unique_ptr<ReckonerTextStream, Free> handle_;
};

}  // namespace reckoner
