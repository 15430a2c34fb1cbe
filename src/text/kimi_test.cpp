// Kimi's tokenizer files: tiktoken.model and tokenizer_config.json, no tokenizer.json.
#include <gtest/gtest.h>

#include "text/recorded_ids_test_support.h"

namespace reckoner {
namespace {

const std::filesystem::path kKimiFolder = "tests/data/tokenizers/kimi";
constexpr TokenId kRanks = 2256;  // tokens in tiktoken.model

Tokenizer kimi() { return must(Tokenizer::load(kKimiFolder)); }

TEST(Kimi, EncodesAsTiktoken) {
  const Tokenizer tokenizer = kimi();
  const std::vector<RecordedIds> recorded = read_recorded_ids("kimi-ids.json");
  ASSERT_GE(recorded.size(), 25u);
  for (const RecordedIds& one : recorded) expect_recorded(tokenizer, one);
}

TEST(Kimi, CountsItsTokens) {
  const Tokenizer tokenizer = kimi();
  EXPECT_EQ(tokenizer.base_vocab_size(), kRanks);
  EXPECT_EQ(tokenizer.vocab_size(), kRanks + 256);  // the published class reserves 256 ids for added tokens
  EXPECT_TRUE(tokenizer.piece(kRanks + 255).ok());
  EXPECT_FALSE(tokenizer.piece(kRanks + 256).ok());
}

TEST(Kimi, FindsAddedTokensOfTheConfiguration) {
  const Tokenizer tokenizer = kimi();
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), kRanks + 2);
  EXPECT_EQ(tokenizer.token_id("<|im_middle|>"), kRanks + 17);
  EXPECT_EQ(tokenizer.token_id("<|reserved_token_2261|>"), kRanks + 5);
  EXPECT_EQ(must(tokenizer.piece(kRanks + 2)), "<|im_end|>");
  EXPECT_EQ(must(tokenizer.encode("<|im_end|>")), std::vector<TokenId>{kRanks + 2});
}

// A client's tool-call parser needs the tokens that are added but not special.
TEST(Kimi, SkipsSpecialTokensOnly) {
  const Tokenizer tokenizer = kimi();
  const std::vector<TokenId> ids = must(tokenizer.encode("<|im_assistant|>a<|tool_call_begin|>b<|im_end|>"));
  EXPECT_EQ(must(tokenizer.decode(ids, SpecialTokens::skip)), "a<|tool_call_begin|>b");
  EXPECT_EQ(must(tokenizer.decode(ids, SpecialTokens::keep)), "<|im_assistant|>a<|tool_call_begin|>b<|im_end|>");
}

TEST(Kimi, APieceIsTheBytesOfItsToken) {
  const Tokenizer tokenizer = kimi();
  // 𓀀 is in no merge: four tokens of one byte each.
  const std::vector<TokenId> ids = must(tokenizer.encode("𓀀"));
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(must(tokenizer.piece(ids[0])), "\xF0");
  EXPECT_EQ(must(tokenizer.piece(ids[3])), "\x80");
  std::vector<bool> seen(256, false);
  for (TokenId id = 0; id < 256; ++id) {
    const std::string piece = must(tokenizer.piece(id));
    ASSERT_EQ(piece.size(), 1u) << id;
    seen[static_cast<unsigned char>(piece[0])] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
}

TEST(Kimi, HalfACharacterIsHeldBackAndReplacedAtTheEnd) {
  const Tokenizer tokenizer = kimi();
  const std::vector<TokenId> ids = must(tokenizer.encode("𓀀"));
  ASSERT_EQ(ids.size(), 4u);
  for (std::size_t count = 1; count < 4; ++count) {
    const std::vector<TokenId> half(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(must(tokenizer.decode(half)), "\uFFFD");
    TextStream stream = must(TextStream::open(tokenizer));
    for (const TokenId id : half) EXPECT_EQ(must(stream.push(id)).text, "");
    EXPECT_EQ(must(stream.finish()).text, "\uFFFD");
  }
}

TEST(Kimi, UnknownIdsAreErrors) {
  const Tokenizer tokenizer = kimi();
  EXPECT_FALSE(tokenizer.decode(std::vector<TokenId>{5, kRanks + 256}).ok());
  TextStream stream = must(TextStream::open(tokenizer));
  EXPECT_FALSE(stream.push(kRanks + 256).ok());
}

// The splitter works by backtracking: long runs must neither fail nor take forever.
TEST(Kimi, LongRunsEncode) {
  const Tokenizer tokenizer = kimi();
  for (const std::string unit : {" ", "\n", "a", "A", "漢", "7", "!", "\t\n ", "aB", "é", " a"}) {
    std::string text;
    while (text.size() < 60'000) text += unit;
    text += "x";
    EXPECT_EQ(must(tokenizer.decode(must(tokenizer.encode(text)))), text) << unit;
  }
}

// A copy of the folder with one file replaced.
TemporaryFolder kimi_with(const char* name, std::string_view text) {
  TemporaryFolder folder;
  for (const char* file : {"tiktoken.model", "tokenizer_config.json"}) folder.write(file, read_file(kKimiFolder / file));
  folder.write(name, text);
  return folder;
}

void expect_error(const TemporaryFolder& folder, const std::vector<std::string>& expected) {
  const Result<Tokenizer> loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok()) << expected.back();
  for (const std::string& text : expected) EXPECT_NE(loaded.error().what.find(text), std::string::npos) << loaded.error().what;
  EXPECT_FALSE(loaded.error().remedy.empty());
}

TEST(KimiLoad, ADamagedVocabularyIsNamedWithItsLine) {
  const std::string whole = read_file(kKimiFolder / "tiktoken.model");
  const std::size_t second = whole.find('\n') + 1;
  expect_error(kimi_with("tiktoken.model", "{}"), {"tiktoken.model:1", "base64"});
  expect_error(kimi_with("tiktoken.model", whole.substr(0, second) + "!!!! 1\n"), {"tiktoken.model:2", "!!!! 1"});
  expect_error(kimi_with("tiktoken.model", whole.substr(0, second) + "YQ==\n"), {"tiktoken.model:2"});
  expect_error(kimi_with("tiktoken.model", whole.substr(0, second) + "YQ== -1\n"), {"tiktoken.model:2"});
  expect_error(kimi_with("tiktoken.model", whole.substr(0, second) + "YQ== 4000000000\n"), {"tiktoken.model:2", "4000000000"});
  expect_error(kimi_with("tiktoken.model", whole.substr(0, second) + whole), {"tiktoken.model:2", "before"});
  expect_error(kimi_with("tiktoken.model", whole + "//////8= 5\n"), {"tiktoken.model:2257", "rank 5 was there before"});
  expect_error(kimi_with("tiktoken.model", whole.substr(second)), {"tiktoken.model", "no token for the byte"});
  expect_error(kimi_with("tiktoken.model", ""), {"tiktoken.model", "no token for the byte 0x00"});
  expect_error(kimi_with("tiktoken.model", "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 3\n"),
               {"tiktoken.model", "LFS"});
}

TEST(KimiLoad, ABrokenConfigurationIsAnError) {
  const std::string kimi_class = R"("tokenizer_class":"tokenization_kimi.TikTokenTokenizer",)";
  expect_error(kimi_with("tokenizer_config.json", "{"), {"tokenizer_config.json"});
  for (const std::string added : {R"([])", R"({"x":{"content":"a"}})", R"({"4000000000":{"content":"a"}})", R"({"2256":{}})",
                                  R"({"2256":{"content":""}})", R"({"-1":{"content":"a"}})"}) {
    expect_error(kimi_with("tokenizer_config.json", "{" + kimi_class + R"("added_tokens_decoder":)" + added + "}"),
                 {"tokenizer_config.json: added_tokens_decoder"});
  }
}

// How words are split stands in the Python class beside a vocabulary; another one's would give wrong ids without a word.
TEST(KimiLoad, AnotherModelsVocabularyIsRefused) {
  const TemporaryFolder folder = kimi_with("tokenizer_config.json", R"({"tokenizer_class":"QWenTokenizer"})");
  expect_error(folder, {"tiktoken.model", "how this vocabulary splits words is not known"});
  folder.write("config.json", R"({"model_type":"kimi_k25"})");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  const std::string text = "it's 漢字abc";
  EXPECT_EQ(must(tokenizer.encode(text)), must(kimi().encode(text)));
}

TEST(KimiLoad, TheTemplateIsRendered) {
  const TemporaryFolder folder = kimi_with(
      "chat_template.jinja",
      "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}{{ '<|im_end|>' }}{% endfor %}{{ eos_token }}");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  const std::string text = must(tokenizer.apply_chat_template({.messages_json = R"([{"role":"user","content":"hi"}])"}));
  EXPECT_EQ(text, "<|im_user|>user<|im_middle|>hi<|im_end|>[EOS]");
  EXPECT_EQ(must(tokenizer.encode(text)).size(), 3u + must(tokenizer.encode("user")).size() + must(tokenizer.encode("hi")).size() + 1u);
  EXPECT_EQ(tokenizer.prompt_format(), PromptFormat::chat_template);
  EXPECT_EQ(kimi().prompt_format(), PromptFormat::none);
}

// Kimi-K2.5's program gives its template the tools as TypeScript.
TEST(KimiLoad, KimiK25DeclaresToolsInTypeScript) {
  const TemporaryFolder folder = kimi_with("chat_template.jinja", "{{ tools_ts_str if tools_ts_str is defined else tools | length }}");
  const ChatPrompt prompt{.messages_json = "[]",
                          .tools_json = R"([{"type":"function","function":{"name":"weather","parameters":)"
                                        R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}])"};
  EXPECT_EQ(must(must(Tokenizer::load(folder.path())).apply_chat_template(prompt)), "1");
  folder.write("config.json", R"({"architectures":["KimiK25ForConditionalGeneration"]})");
  const std::string text = must(must(Tokenizer::load(folder.path())).apply_chat_template(prompt));
  EXPECT_TRUE(text.starts_with("# Tools\n\n## functions\nnamespace functions {\n")) << text;
  EXPECT_NE(text.find("type weather = (_: {\n  city: string\n}) => any;"), std::string::npos) << text;
}

TEST(KimiLoad, TellsTheTokensOfItsConfiguration) {
  const Tokenizer tokenizer = kimi();
  ASSERT_TRUE(tokenizer.eos_token() && tokenizer.bos_token());
  EXPECT_EQ(tokenizer.bos_token()->text, "[BOS]");
  EXPECT_EQ(tokenizer.bos_token()->id, kRanks);
  EXPECT_EQ(tokenizer.eos_token()->text, "[EOS]");
  EXPECT_EQ(tokenizer.eos_token()->id, kRanks + 1);
}

}  // namespace
}  // namespace reckoner
