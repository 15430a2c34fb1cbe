#include "text/tokenizer.h"

#include <utility>

#include "base/mapped_file.h"
#include "text/bridge_calls.h"

namespace reckoner {
namespace {

Result<TextPiece> piece_of(ReckonerTextStep step) {
  TextPiece piece{.text = take_bytes(step.text)};
  if (step.stop_index >= 0) piece.stopped_by = static_cast<std::size_t>(step.stop_index);
  return piece;
}

bool has_tokenizer_file(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::filesystem::path name = entry.path().filename();
    if (name == "tokenizer.json" || name == "vocab.json" || name.extension() == ".tiktoken" || name == "tiktoken.model") return true;
  }
  return false;
}

// The library below would take a pointer for broken JSON, and in a template's place for the template.
Status check_downloaded(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tiktoken.model", "tokenizer_config.json", "chat_template.jinja"}) {
    const Result<MappedFile> file = MappedFile::open(folder / name);
    if (file && is_lfs_pointer(file->bytes())) {
      return Error{.what = (folder / name).string() + ": found a Git LFS pointer: the file's content was not downloaded",
                   .remedy = "run `git lfs pull` in that folder, or download this file again"};
    }
  }
  return {};
}

}  // namespace

void Tokenizer::Free::operator()(ReckonerTextTokenizer* handle) const {
  const InBridge in_bridge;
  reckoner_text_free_tokenizer(handle);
}
void TextStream::Free::operator()(ReckonerTextStream* handle) const {
  const InBridge in_bridge;
  reckoner_text_free_stream(handle);
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{.what = folder.string() + ": expected a model folder with a tokenizer.json, found no folder",
                 .remedy = "give the folder that holds the model's config.json and tokenizer files"};
  }
  if (!has_tokenizer_file(folder)) {
    return Error{.what = folder.string() + ": expected tokenizer.json (or tiktoken.model, or vocab.json with merges.txt), found none",
                 .remedy = "copy tokenizer.json from where the model was published into this folder"};
  }
  TRY(check_downloaded(folder));
  const InBridge in_bridge;
  ReckonerTextTokenizer* handle = nullptr;
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_load(bridge_slice(folder.native()), &handle, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return Tokenizer(handle);
}

Result<Tokenizer> Tokenizer::from_memory(std::string_view tokenizer_json, std::string_view chat_template) {
  const InBridge in_bridge;
  ReckonerTextTokenizer* handle = nullptr;
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_load_from_memory(bridge_slice(tokenizer_json), bridge_slice(chat_template), &handle, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return Tokenizer(handle);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, AddSpecialTokens add_special_tokens) const {
  const InBridge in_bridge;
  ReckonerTextIds ids{};
  ReckonerTextBytes error{};
  const int add = add_special_tokens == AddSpecialTokens::yes ? 1 : 0;
  const ReckonerTextCode code = reckoner_text_encode(handle_.get(), bridge_slice(text), add, &ids, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  std::vector<TokenId> copy(ids.data, ids.data + ids.count);
  reckoner_text_free_ids(ids);
  return copy;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens special_tokens) const {
  const InBridge in_bridge;
  ReckonerTextBytes text{};
  ReckonerTextBytes error{};
  const int skip = special_tokens == SpecialTokens::skip ? 1 : 0;
  const ReckonerTextCode code = reckoner_text_decode(handle_.get(), ids.data(), ids.size(), skip, &text, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return take_bytes(text);
}

Result<std::string> Tokenizer::piece(TokenId id) const {
  const InBridge in_bridge;
  ReckonerTextBytes bytes{};
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_piece(handle_.get(), id, &bytes, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return take_bytes(bytes);
}

std::size_t Tokenizer::vocab_size() const {
  const InBridge in_bridge;
  return reckoner_text_vocab_size(handle_.get());
}
bool Tokenizer::is_added(TokenId id) const {
  const InBridge in_bridge;
  return reckoner_text_is_added(handle_.get(), id) != 0;
}
std::size_t Tokenizer::base_vocab_size() const {
  const InBridge in_bridge;
  return reckoner_text_base_vocab_size(handle_.get());
}

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const {
  const InBridge in_bridge;
  TokenId id = 0;
  std::int32_t found = 0;
  ReckonerTextBytes error{};
  // Text that is not UTF-8 is no token either.
  if (reckoner_text_token_id(handle_.get(), bridge_slice(token), &id, &found, &error) != RECKONER_TEXT_OK) reckoner_text_free_bytes(error);
  return found != 0 ? std::optional(id) : std::nullopt;
}

std::optional<NamedToken> Tokenizer::config_token(int which) const {
  const InBridge in_bridge;
  ReckonerTextBytes text{};
  std::int32_t found = 0;
  ReckonerTextBytes error{};
  if (reckoner_text_config_token(handle_.get(), which, &text, &found, &error) != RECKONER_TEXT_OK) reckoner_text_free_bytes(error);
  if (found == 0) return std::nullopt;
  NamedToken token{.text = take_bytes(text), .id = std::nullopt};
  token.id = token_id(token.text);
  return token;
}
std::optional<NamedToken> Tokenizer::bos_token() const { return config_token(0); }
std::optional<NamedToken> Tokenizer::eos_token() const { return config_token(1); }

PromptFormat Tokenizer::prompt_format() const {
  const InBridge in_bridge;
  switch (reckoner_text_prompt_format(handle_.get())) {
    case 1:
      return PromptFormat::chat_template;
    case 2:
      return PromptFormat::native;
    default:
      return PromptFormat::none;
  }
}

std::string Tokenizer::chat_template() const {
  const InBridge in_bridge;
  ReckonerTextBytes text{};
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_chat_template(handle_.get(), &text, &error);
  if (code == RECKONER_TEXT_OK) return take_bytes(text);
  reckoner_text_free_bytes(error);
  return {};
}

std::string Tokenizer::prompt_source() const {
  const InBridge in_bridge;
  ReckonerTextBytes name{};
  ReckonerTextBytes error{};
  if (reckoner_text_prompt_source(handle_.get(), &name, &error) == RECKONER_TEXT_OK) return take_bytes(name);
  reckoner_text_free_bytes(error);
  return "";
}

Result<std::string> Tokenizer::apply_chat_template(const ChatPrompt& prompt) const {
  const ReckonerTextPrompt request{.messages_json = bridge_slice(prompt.messages_json),
                                   .tools_json = bridge_slice(prompt.tools_json),
                                   .kwargs_json = bridge_slice(prompt.kwargs_json),
                                   .add_generation_prompt = prompt.generation_prompt == GenerationPrompt::add ? 1 : 0};
  const InBridge in_bridge;
  ReckonerTextBytes text{};
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_render(handle_.get(), &request, &text, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return take_bytes(text);
}

Result<TextStream> TextStream::open(const Tokenizer& tokenizer, const TextStreamOptions& options) {
  std::vector<ReckonerTextSlice> stops;
  for (const std::string& stop : options.stop_strings) stops.push_back(bridge_slice(stop));
  const InBridge in_bridge;
  ReckonerTextStream* handle = nullptr;
  ReckonerTextBytes error{};
  const int skip = options.special_tokens == SpecialTokens::skip ? 1 : 0;
  const ReckonerTextCode code = reckoner_text_open_stream(tokenizer.handle_.get(), stops.data(), stops.size(), skip, &handle, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return TextStream(handle);
}

Result<TextPiece> TextStream::push(TokenId id) {
  const InBridge in_bridge;
  ReckonerTextStep step{};
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_push(handle_.get(), id, &step, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return piece_of(step);
}

Result<TextPiece> TextStream::finish() {
  const InBridge in_bridge;
  ReckonerTextStep step{};
  ReckonerTextBytes error{};
  const ReckonerTextCode code = reckoner_text_finish(handle_.get(), &step, &error);
  if (code != RECKONER_TEXT_OK) return bridge_error(code, error);
  return piece_of(step);
}

}  // namespace reckoner
