// Grammars: which tokens may come next, so that an answer is JSON of a schema, matches a regular expression, or follows a grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

// The bridge's handles (text/bridge/reckoner_text.h).
struct ReckonerTextGrammars;
struct ReckonerTextGrammar;

namespace reckoner {

// One answer's place in its grammar. Move-only, for one thread at a time; may outlive its factory.
class Grammar {
 public:
  // Sets bit id % 32 of bits[id / 32] for each token that may come next and clears the others. Where the text may end, the tokens that
  // end it are among them; a finished grammar allows no others. Error: the grammar is too complex to go on.
  Status compute_mask(std::span<std::uint32_t> bits);  // [ceil(vocab_size / 32)]

  // Takes the token that was chosen. Error: it is not allowed here; the grammar is as it was.
  Status accept(TokenId id);

  // Whether nothing but the end of the text may follow.
  bool finished() const;

 private:
  friend class GrammarFactory;
  struct Free {
    void operator()(ReckonerTextGrammar* handle) const;
  };
  explicit Grammar(ReckonerTextGrammar* handle) : handle_(handle) {}

  std::unique_ptr<ReckonerTextGrammar, Free> handle_;
};

// Compiles grammars for one model. Move-only; const functions may be called from any number of threads at once.
class GrammarFactory {
 public:
  // `eos_ids` end the text; `vocab_size` is the width of the model's logits. Ids that the tokenizer does not know are never allowed, and
  // tokens that were added to its vocabulary, such as <|user|> and <think>, only where a grammar names them.
  // Errors: no id ends the text; one is not below vocab_size.
  static Result<GrammarFactory> create(const Tokenizer& tokenizer, std::span<const std::int32_t> eos_ids, std::int64_t vocab_size);

  // JSON of a schema, with at most 64 characters of white space between two parts of it. A schema that demands nothing ({}) means any
  // object, as OpenAI's structured answers are. Errors say what is wrong with the schema, or which demand of it is not supported.
  Result<Grammar> json_schema(std::string_view schema) const;
  // Any JSON object.
  Result<Grammar> json_object() const;
  // Text that as a whole matches the expression (in the syntax of Rust's regex).
  Result<Grammar> regex(std::string_view expression) const;
  // Text that follows a grammar in llguidance's variant of Lark.
  Result<Grammar> lark(std::string_view grammar) const;

 private:
  struct Free {
    void operator()(ReckonerTextGrammars* handle) const;
  };
  explicit GrammarFactory(ReckonerTextGrammars* handle) : handle_(handle) {}
  Result<Grammar> compile(int kind, std::string_view text) const;

  std::unique_ptr<ReckonerTextGrammars, Free> handle_;
};

}  // namespace reckoner
