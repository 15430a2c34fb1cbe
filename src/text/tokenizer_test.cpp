#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <type_traits>

#include "text/text_test_support.h"

namespace reckoner {
namespace {

static_assert(!std::is_copy_constructible_v<Tokenizer> && std::is_nothrow_move_constructible_v<Tokenizer>);
static_assert(!std::is_copy_constructible_v<TextStream> && std::is_nothrow_move_constructible_v<TextStream>);

TEST(Tokenizer, MapsSpecialTokensInTextToTheirIds) {
  const Tokenizer tokenizer = pocket();
  const std::vector<TokenId> ids = must(tokenizer.encode("[gMASK]<sop><|user|>x<|assistant|></think>"));
  ASSERT_EQ(ids.size(), 6u);
  EXPECT_EQ(ids[0], tokenizer.token_id("[gMASK]"));
  EXPECT_EQ(ids[1], tokenizer.token_id("<sop>"));
  EXPECT_EQ(ids[2], tokenizer.token_id("<|user|>"));
  EXPECT_EQ(ids[5], tokenizer.token_id("</think>"));
  EXPECT_FALSE(tokenizer.token_id("<|nobody|>").has_value());
  EXPECT_FALSE(tokenizer.token_id("\xFF").has_value());
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const Tokenizer tokenizer = pocket();
  for (const std::string text : {"", " ", "plain words", "  two  spaces\n\n\ttab", "naïve café", "漢字かな交じり",
                                 "👩‍👩‍👧 family 🏳️‍🌈", "null \0 byte inside", "<|user|>not only <sop>"}) {
    EXPECT_EQ(must(tokenizer.decode(must(tokenizer.encode(text)))), text);
  }
  const std::string with_zero("a\0b", 3);
  EXPECT_EQ(must(tokenizer.decode(must(tokenizer.encode(with_zero)))), with_zero);
}

TEST(Tokenizer, SkipsOrKeepsSpecialTokens) {
  const Tokenizer tokenizer = pocket();
  const std::vector<TokenId> ids = must(tokenizer.encode("<|user|>hi</think>"));
  EXPECT_EQ(must(tokenizer.decode(ids, SpecialTokens::keep)), "<|user|>hi</think>");
  EXPECT_EQ(must(tokenizer.decode(ids, SpecialTokens::skip)), "hi</think>");  // </think> is added but not special
}

TEST(Tokenizer, CountsItsTokens) {
  const Tokenizer tokenizer = pocket();
  EXPECT_EQ(tokenizer.base_vocab_size(), 4032u);
  EXPECT_EQ(tokenizer.vocab_size(), 4053u);
  EXPECT_TRUE(tokenizer.piece(4052).ok());
  EXPECT_FALSE(tokenizer.piece(4053).ok());
}

TEST(Tokenizer, PiecesTogetherAreTheDecodedBytes) {
  const Tokenizer tokenizer = pocket();
  const std::string text = "The 漢字 of 👩‍👩‍👧 isn't\tplain<|user|>";
  std::string joined;
  for (const TokenId id : must(tokenizer.encode(text))) joined += must(tokenizer.piece(id));
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, EveryByteHasAPiece) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const Tokenizer tokenizer = byte_level_tokenizer(tokens);
  for (TokenId id = 0; id < 256; ++id) EXPECT_EQ(must(tokenizer.piece(id)), tokens[id]) << id;
  EXPECT_EQ(must(tokenizer.piece(256)), "<|end|>");
}

TEST(Tokenizer, SentencePiecePiecesAreBytesToo) {
  const Tokenizer tokenizer =
      must(Tokenizer::from_memory(R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
                                  R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                                  R"({"type":"ByteFallback"},{"type":"Fuse"}]},)"
                                  R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"<0xE6>":0,"▁a":1,"b":2},"merges":[]}})"));
  EXPECT_EQ(must(tokenizer.piece(0)), "\xE6");
  EXPECT_EQ(must(tokenizer.piece(1)), " a");
  EXPECT_EQ(must(tokenizer.piece(2)), "b");
}

TEST(Tokenizer, TextThatIsNotUtf8IsAnError) {
  const Result<std::vector<TokenId>> ids = pocket().encode("abc\xC3(");
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().what.find("not UTF-8 at byte 3"), std::string::npos) << ids.error().what;
}

TEST(Tokenizer, UnknownIdsDecodeToNothing) {
  const std::vector<TokenId> ids = {100000, 4000000000u};
  EXPECT_EQ(must(pocket().decode(ids)), "");
}

TEST(TokenizerLoad, AnAbsentFolderIsNamed) {
  const Result<Tokenizer> loaded = Tokenizer::load("models/absent");
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().what.find("models/absent"), std::string::npos);
  EXPECT_FALSE(loaded.error().remedy.empty());
}

// A name that the library below would look up on a hub, or take for its own test double.
TEST(TokenizerLoad, NamesAreFoldersOnly) {
  for (const char* name : {"gpt-4", "mock", "test", "bert-base-uncased"}) EXPECT_FALSE(Tokenizer::load(name).ok()) << name;
}

TEST(TokenizerLoad, AFolderWithoutATokenizerIsNamedWithWhatWasExpected) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  const Result<Tokenizer> loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().what.find(folder.path().string()), std::string::npos);
  EXPECT_NE(loaded.error().what.find("tokenizer.json"), std::string::npos);
  EXPECT_NE(loaded.error().remedy.find("tokenizer.json"), std::string::npos);
}

void expect_named_failure(const TemporaryFolder& folder, const std::string& file, const std::string& what_is_wrong) {
  const Result<Tokenizer> loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok()) << what_is_wrong;
  EXPECT_NE(loaded.error().what.find(file), std::string::npos) << what_is_wrong << ": " << loaded.error().what;
  EXPECT_FALSE(loaded.error().remedy.empty()) << what_is_wrong;
}

TEST(TokenizerLoad, ATruncatedFileIsAnError) {
  const std::string whole = read_file("models/pocket/tokenizer.json");
  const TemporaryFolder folder;
  for (std::size_t size_bytes = 0; size_bytes + 1 < whole.size(); size_bytes += 1 + whole.size() / 40) {
    folder.write("tokenizer.json", whole.substr(0, size_bytes));
    expect_named_failure(folder, "tokenizer.json", "cut to " + std::to_string(size_bytes));
  }
}

TEST(TokenizerLoad, WrongTypesAreAnError) {
  const std::vector<std::string> texts = {
      "[]",
      "\"text\"",
      "null",
      "{}",
      "\xFF\xFE",
      R"({"version":"1.0"})",
      R"({"version":"1.0","model":3})",
      R"({"version":"1.0","model":{"type":"BPE","vocab":[],"merges":[]}})",
      R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":"b"},"merges":[]}})",
      R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})",
      R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":4294967295},"merges":[]},"decoder":{"type":"ByteLevel"}})",
      R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})",
      R"({"version":"1.0","model":{"type":"Nonesuch","vocab":{"a":0}}})",
      R"({"version":"1.0","added_tokens":7,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
      std::string(200000, '['),
  };
  const TemporaryFolder folder;
  for (const std::string& text : texts) {
    folder.write("tokenizer.json", text);
    expect_named_failure(folder, "tokenizer.json", text.substr(0, 100));
  }
}

TEST(TokenizerLoad, AFolderInTheFilesPlaceIsAnError) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "tokenizer.json");
  EXPECT_FALSE(Tokenizer::load(folder.path()).ok());
}

TEST(TokenizerLoad, ABrokenConfigIsAnError) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file("models/pocket/tokenizer.json"));
  for (const char* text : {"", "{\"eos_token\": ", "[]"}) {
    folder.write("tokenizer_config.json", text);
    expect_named_failure(folder, "tokenizer_config.json", text);
  }
  std::filesystem::remove(folder.path() / "tokenizer_config.json");
  EXPECT_TRUE(Tokenizer::load(folder.path()).ok());  // a folder without the file is a folder without a template
}

// A tokenizer.json saved after training often carries that run's truncation; a server must not cut prompts to it.
TEST(TokenizerLoad, SavedTruncationAndPaddingHaveNoEffect) {
  std::string json = read_file("models/pocket/tokenizer.json");
  const std::string was = "\"truncation\": null,\n  \"padding\": null";
  ASSERT_NE(json.find(was), std::string::npos);
  json.replace(json.find(was), was.size(),
               R"("truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
                  "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                              "pad_type_id": 0, "pad_token": "x"})");
  const TemporaryFolder folder;
  folder.write("tokenizer.json", json);
  folder.write("tokenizer_config.json", read_file("models/pocket/tokenizer_config.json"));
  folder.write("chat_template.jinja", "{{ eos_token }}");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  const std::string text = "one two three four";
  EXPECT_EQ(must(tokenizer.encode(text)), must(pocket().encode(text)));
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = "[]"})), "<|endoftext|>");
  EXPECT_EQ(must(must(Tokenizer::from_memory(json)).encode(text)), must(pocket().encode(text)));
}

TEST(Tokenizer, ServesManyThreadsAtOnce) {
  const Tokenizer tokenizer = pocket();
  const ChatPrompt prompt{.messages_json = R"([{"role":"user","content":"What is a 望遠鏡 🔭?"}])"};
  const std::string text = must(tokenizer.apply_chat_template(prompt));
  const std::vector<TokenId> ids = must(tokenizer.encode(text));
  constexpr int kThreads = 4;
  std::barrier all_here(kThreads);
  const auto work = [&](int seed) {
    all_here.arrive_and_wait();
    for (int round = 0; round < 50; ++round) {
      // Words of its own for each thread, so that the encoder's cache is written from all of them.
      const std::string own = "word" + std::to_string(seed * 1000 + round) + " thing";
      EXPECT_EQ(must(tokenizer.decode(must(tokenizer.encode(own)))), own);
      EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), text);
      EXPECT_EQ(must(tokenizer.encode(text)), ids);
      TextStream stream = must(TextStream::open(tokenizer, {.special_tokens = SpecialTokens::keep}));
      std::string streamed;
      for (const TokenId id : ids) streamed += must(stream.push(id)).text;
      EXPECT_EQ(streamed + must(stream.finish()).text, text);
    }
    all_here.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (int seed = 0; seed < kThreads; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reckoner
