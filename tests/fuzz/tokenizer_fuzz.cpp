// Bytes as a tokenizer.json, as a chat template, as a request, or as tokens: nothing but results and errors may come of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace {

using namespace reckoner;

constexpr std::string_view kTokenizerJson =
    R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,)"
    R"("added_tokens":[{"id":7,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],)"
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
    R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ð":3,"Ł":4,"ĺ":5,"Ģ":6},"merges":["a b"]}})";

constexpr std::string_view kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson(ensure_ascii=False) }}{% endfor %}{% endfor %}{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson(indent=2) }}{% endfor %}{{ 'go' if add_generation_prompt }}";

constexpr const char* kMessages =
    R"([{"role":"system","content":null},{"role":"user","content":[{"type":"text","text":"é"}]},)"
    R"({"role":"assistant","content":"x","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","content":"1"}])";

void stream(const Tokenizer& tokenizer, std::string_view bytes) {
  const TextStreamOptions options{.stop_strings = {"ab", "😀", "b<|"},
                                  .special_tokens = bytes.size() % 2 == 0 ? SpecialTokens::skip : SpecialTokens::keep};
  auto opened = TextStream::open(tokenizer, options);
  if (!opened) return;
  for (const char byte : bytes) (void)opened->push(static_cast<unsigned char>(byte));
  (void)opened->finish();
}

void use(const Tokenizer& tokenizer) {
  const auto ids = tokenizer.encode("ab <|end|> 😀\n\nab", AddSpecialTokens::yes);
  if (ids) (void)tokenizer.decode(*ids, SpecialTokens::skip);
  for (TokenId id = 0; id < 16; ++id) (void)tokenizer.piece(id);
  (void)tokenizer.vocab_size();
  stream(tokenizer, std::string_view("\0\1\2\3\4\5\6\7", 8));
}

void render(const Tokenizer& tokenizer, std::string messages_json, std::string tools_json) {
  (void)tokenizer.apply_chat_template({.messages_json = std::move(messages_json), .tools_json = std::move(tools_json)});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer fixed = Tokenizer::from_memory(kTokenizerJson, kTemplate).value();
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      if (const auto loaded = Tokenizer::from_memory(bytes)) use(*loaded);
      break;
    case 1:
      if (const auto loaded = Tokenizer::from_memory(kTokenizerJson, bytes)) render(*loaded, kMessages, R"([{"z":1,"a":"é"}])");
      break;
    case 2:
      render(fixed, std::string(bytes), std::string(bytes));
      break;
    default:
      stream(fixed, bytes);
  }
  return 0;
}
