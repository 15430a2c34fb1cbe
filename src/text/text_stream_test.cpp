#include <gtest/gtest.h>

#include "text/text_test_support.h"
#include "text/tokenizer.h"

namespace reckoner {
namespace {

const std::vector<std::string> kCharacters = {"é", "ß", "漢", "€", "😀", "👩‍👧"};

bool is_utf8_boundary(std::string_view text, std::size_t position) {
  return position == text.size() || (static_cast<unsigned char>(text[position]) & 0xC0) != 0x80;
}

// Whether `text` is whole characters without a replacement character.
bool is_whole(std::string_view text) {
  return text.find("\uFFFD") == std::string_view::npos && is_utf8_boundary(text, 0) && (text.empty() || [&] {
           std::size_t last = text.size() - 1;
           while (last > 0 && !is_utf8_boundary(text, last)) --last;
           const unsigned lead = static_cast<unsigned char>(text[last]);
           const std::size_t expected = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
           return text.size() - last == expected;
         }());
}

// A vocabulary that holds every run of bytes of `text` as a token, so that any way to cut the text can be streamed.
struct Pieces {
  explicit Pieces(const std::string& given) : text(given) {
    std::vector<std::string> tokens;
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
      for (std::size_t size = 1; begin + size <= text.size(); ++size) {
        const std::string bytes = text.substr(begin, size);
        if (ids.emplace(bytes, tokens.size()).second) tokens.push_back(bytes);
      }
    }
    tokenizer.emplace(byte_level_tokenizer(tokens));
  }
  TokenId id(std::size_t begin, std::size_t end) const { return ids.at(text.substr(begin, end - begin)); }
  // The text cut at the positions whose bit is set in `cuts` (bit 0: after the first byte).
  std::vector<TokenId> cut(std::size_t cuts) const {
    std::vector<TokenId> tokens;
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= text.size(); ++end) {
      if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
      tokens.push_back(id(begin, end));
      begin = end;
    }
    return tokens;
  }

  std::string text;
  std::map<std::string, TokenId> ids = {};
  std::optional<Tokenizer> tokenizer = std::nullopt;
};

struct Streamed {
  std::string text;
  std::optional<std::size_t> stopped_by;
  std::size_t pushed = 0;  // tokens until it stopped
};

Streamed stream_all(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const TextStreamOptions& options) {
  TextStream stream = must(TextStream::open(tokenizer, options));
  Streamed all;
  for (const TokenId id : ids) {
    const TextPiece piece = must(stream.push(id));
    EXPECT_TRUE(is_whole(piece.text)) << piece.text;
    all.text += piece.text;
    ++all.pushed;
    if (piece.stopped_by) {
      all.stopped_by = piece.stopped_by;
      return all;
    }
  }
  const TextPiece last = must(stream.finish());
  all.text += last.text;
  all.stopped_by = last.stopped_by;
  return all;
}

TEST(TextStream, EveryCutOfEveryCharacterComesOutWhole) {
  for (const std::string& character : kCharacters) {
    const Pieces pieces("a" + character + "b");
    for (std::size_t cuts = 0; cuts < std::size_t{1} << (pieces.text.size() - 1); ++cuts) {
      EXPECT_EQ(stream_all(*pieces.tokenizer, pieces.cut(cuts), {}).text, pieces.text) << character << " cut " << cuts;
    }
  }
}

TEST(TextStream, ACharacterIsGivenWithItsLastByte) {
  const Pieces pieces("漢");
  TextStream stream = must(TextStream::open(*pieces.tokenizer));
  EXPECT_EQ(must(stream.push(pieces.id(0, 1))).text, "");
  EXPECT_EQ(must(stream.push(pieces.id(1, 2))).text, "");
  EXPECT_EQ(must(stream.push(pieces.id(2, 3))).text, "漢");
}

TEST(TextStream, HalfACharacterAtTheEndIsReplaced) {
  for (const std::string& character : {std::string("é"), std::string("漢"), std::string("😀")}) {
    const Pieces pieces(character);
    for (std::size_t size = 1; size < character.size(); ++size) {
      for (const std::vector<std::string>& stops : {std::vector<std::string>{}, std::vector<std::string>{"stop"}}) {
        TextStream stream = must(TextStream::open(*pieces.tokenizer, {.stop_strings = stops}));
        EXPECT_EQ(must(stream.push(pieces.id(0, size))).text, "");
        EXPECT_EQ(must(stream.finish()).text, "\uFFFD") << character << " cut to " << size;
        EXPECT_EQ(must(stream.finish()).text, "");
        EXPECT_FALSE(stream.push(0).ok());
      }
    }
  }
}

TEST(TextStream, InvalidBytesAreReplacedAsInDecode) {
  const Tokenizer tokenizer = byte_level_tokenizer({"a", "\x80", "\xE6\xBC", "b", "\xF0\x9F"});
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{0, 1, 3}, {2, 3}, {1, 1, 1}, {0, 2, 1, 1}, {4, 2, 0}, {2, 2, 2}, {0, 4}}) {
    TextStream stream = must(TextStream::open(tokenizer));
    std::string text;
    for (const TokenId id : ids) text += must(stream.push(id)).text;
    EXPECT_EQ(text + must(stream.finish()).text, must(tokenizer.decode(ids)));
  }
}

// Every cut of the text into tokens, for stop strings at the beginning, in the middle and at the end.
TEST(TextStream, StopStringsAreFoundAcrossEveryTokenBorder) {
  const Pieces pieces("say 漢\nEND.");
  const std::vector<std::string> stops = {"\nEND", "漢", "END.", "sa"};
  for (std::size_t which = 0; which < stops.size(); ++which) {
    const std::string expected = pieces.text.substr(0, pieces.text.find(stops[which]));
    for (std::size_t cuts = 0; cuts < std::size_t{1} << (pieces.text.size() - 1); cuts += 3) {
      const TextStreamOptions options{.stop_strings = {"never", stops[which]}};
      const Streamed streamed = stream_all(*pieces.tokenizer, pieces.cut(cuts), options);
      EXPECT_EQ(streamed.text, expected) << stops[which] << " cut " << cuts;
      EXPECT_EQ(streamed.stopped_by, std::size_t{1}) << stops[which] << " cut " << cuts;
    }
  }
}

TEST(TextStream, TextThatMayBecomeAStopStringIsHeldBack) {
  const Pieces pieces("a<|eb");
  TextStream stream = must(TextStream::open(*pieces.tokenizer, {.stop_strings = {"<|end|>"}}));
  EXPECT_EQ(must(stream.push(pieces.id(0, 2))).text, "a");     // "a<": the "<" may begin the stop string
  EXPECT_EQ(must(stream.push(pieces.id(2, 4))).text, "");      // "<|e"
  EXPECT_EQ(must(stream.push(pieces.id(4, 5))).text, "<|eb");  // it did not
}

TEST(TextStream, APartialStopStringIsGivenAtTheEnd) {
  const Pieces pieces("abc<|end");
  const Streamed streamed = stream_all(*pieces.tokenizer, pieces.cut(~std::size_t{0}), {.stop_strings = {"<|end|>"}});
  EXPECT_EQ(streamed.text, "abc<|end");
  EXPECT_FALSE(streamed.stopped_by.has_value());
}

TEST(TextStream, AStopStringAtTheVeryEndIsNotGiven) {
  const Pieces pieces("abcEND");
  for (std::size_t cuts = 0; cuts < 32; ++cuts) {
    const std::vector<TokenId> ids = pieces.cut(cuts);
    const Streamed streamed = stream_all(*pieces.tokenizer, ids, {.stop_strings = {"END"}});
    EXPECT_EQ(streamed.text, "abc");
    EXPECT_EQ(streamed.stopped_by, std::size_t{0});
    EXPECT_EQ(streamed.pushed, ids.size());
  }
}

TEST(TextStream, TheStopStringThatEndsFirstWinsWhateverTheCut) {
  const Pieces pieces("xabcd");
  for (std::size_t cuts = 0; cuts < 16; ++cuts) {
    const Streamed streamed = stream_all(*pieces.tokenizer, pieces.cut(cuts), {.stop_strings = {"abcd", "c"}});
    EXPECT_EQ(streamed.text, "xab") << cuts;
    EXPECT_EQ(streamed.stopped_by, std::size_t{1}) << cuts;
  }
}

TEST(TextStream, NothingComesAfterAStop) {
  const Pieces pieces("aSTOPb");
  TextStream stream = must(TextStream::open(*pieces.tokenizer, {.stop_strings = {"STOP"}}));
  EXPECT_EQ(must(stream.push(pieces.id(0, 6))).text, "a");
  const TextPiece later = must(stream.push(pieces.id(5, 6)));
  EXPECT_EQ(later.text, "");
  EXPECT_EQ(later.stopped_by, std::size_t{0});
  EXPECT_EQ(must(stream.finish()).text, "");
}

TEST(TextStream, AnEmptyStopStringIsAnError) {
  const Tokenizer tokenizer = byte_level_tokenizer({"a"});
  EXPECT_FALSE(TextStream::open(tokenizer, {.stop_strings = {"x", ""}}).ok());
  EXPECT_FALSE(TextStream::open(tokenizer, {.stop_strings = {"\xFF"}}).ok());
}

TEST(TextStream, SpecialTokensAreSkippedOrKept) {
  const Tokenizer tokenizer = byte_level_tokenizer({"a", "b"});
  const std::vector<TokenId> ids = {0, 2, 1};  // a <|end|> b
  EXPECT_EQ(stream_all(tokenizer, ids, {}).text, "ab");
  EXPECT_EQ(stream_all(tokenizer, ids, {.special_tokens = SpecialTokens::keep}).text, "a<|end|>b");
}

TEST(TextStream, AStopStringMayBeASpecialTokensText) {
  const Tokenizer tokenizer = byte_level_tokenizer({"a", "b"});
  const TextStreamOptions options{.stop_strings = {"<|end|>"}, .special_tokens = SpecialTokens::keep};
  const Streamed streamed = stream_all(tokenizer, {0, 2, 1}, options);
  EXPECT_EQ(streamed.text, "a");
  EXPECT_EQ(streamed.stopped_by, std::size_t{0});
}

TEST(TextStream, OutlivesItsTokenizer) {
  std::optional<Tokenizer> tokenizer = byte_level_tokenizer({"a", "b"});
  TextStream stream = must(TextStream::open(*tokenizer));
  tokenizer.reset();
  EXPECT_EQ(must(stream.push(0)).text + must(stream.push(1)).text, "ab");
}

// SentencePiece vocabularies take another way through the library: a window of tokens, byte by byte.
TEST(TextStream, ByteFallbackVocabulariesStreamWholeCharacters) {
  const Tokenizer tokenizer = must(Tokenizer::from_memory(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"}]},)"
      R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"<0xE6>":0,"<0xBC>":1,"<0xA2>":2,"▁a":3},"merges":[]}})"));
  EXPECT_EQ(stream_all(tokenizer, {3, 0, 1, 2, 3}, {}).text, " a漢 a");
  EXPECT_EQ(stream_all(tokenizer, {3, 0, 1, 2, 3}, {.stop_strings = {"漢"}}).text, " a");
  TextStream stream = must(TextStream::open(tokenizer));
  EXPECT_EQ(must(stream.push(3)).text, " a");
  EXPECT_EQ(must(stream.push(0)).text, "");
  EXPECT_EQ(must(stream.finish()).text, "\uFFFD");
}

TEST(TextStream, StreamsThePocketModelsText) {
  const Tokenizer tokenizer = pocket();
  const std::string text = "A 望遠鏡 (🔭) isn't a <tool_call>thing</tool_call>\n\n  indented";
  EXPECT_EQ(stream_all(tokenizer, must(tokenizer.encode(text)), {}).text, text);
}

}  // namespace
}  // namespace reckoner
