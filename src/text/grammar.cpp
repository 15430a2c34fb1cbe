#include "text/grammar.h"

#include <vector>

#include "base/check.h"
#include "text/bridge_calls.h"

namespace reckoner {
namespace {

// As reckoner_text_compile_grammar numbers them.
enum Kind : int { kJsonSchema = 0, kJsonObject = 1, kRegex = 2, kLark = 3 };

}  // namespace

void Grammar::Free::operator()(ReckonerTextGrammar* handle) const {
  const InBridge in_bridge;
  reckoner_text_free_grammar(handle);
}
void GrammarFactory::Free::operator()(ReckonerTextGrammars* handle) const {
  const InBridge in_bridge;
  reckoner_text_free_grammars(handle);
}

Status Grammar::compute_mask(std::span<std::uint32_t> bits) {
  CHECK(!bits.empty());
  const InBridge in_bridge;
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_fill_mask(handle_.get(), bits.data(), bits.size(), &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return {};
}

Status Grammar::accept(TokenId id) {
  const InBridge in_bridge;
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_accept(handle_.get(), id, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return {};
}

bool Grammar::finished() const {
  const InBridge in_bridge;
  return reckoner_text_grammar_finished(handle_.get()) != 0;
}

Result<GrammarFactory> GrammarFactory::create(const Tokenizer& tokenizer, std::span<const std::int32_t> eos_ids, std::int64_t vocab_size) {
  const InBridge in_bridge;
  const std::vector<std::uint32_t> ids(eos_ids.begin(), eos_ids.end());
  ReckonerTextGrammars* handle = nullptr;
  ReckonerTextBytes error{};
  const ReckonerTextCode code =
      reckoner_text_open_grammars(tokenizer.handle_.get(), ids.data(), ids.size(), static_cast<std::size_t>(vocab_size), &handle, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return GrammarFactory(handle);
}

Result<Grammar> GrammarFactory::json_schema(std::string_view schema) const { return compile(kJsonSchema, schema); }
Result<Grammar> GrammarFactory::json_object() const { return compile(kJsonObject, {}); }
Result<Grammar> GrammarFactory::regex(std::string_view expression) const { return compile(kRegex, expression); }
Result<Grammar> GrammarFactory::lark(std::string_view grammar) const { return compile(kLark, grammar); }

Result<Grammar> GrammarFactory::compile(int kind, std::string_view text) const {
  const InBridge in_bridge;
  ReckonerTextGrammar* handle = nullptr;
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_compile_grammar(handle_.get(), kind, bridge_slice(text), &handle, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return Grammar(handle);
}

}  // namespace reckoner
