// Texts with the ids that a published library gives for them (tools/record_tokenizers.py), and what is tested of each.
#pragma once

#include <boost/json.hpp>

#include "text/text_test_support.h"

namespace reckoner {

struct RecordedIds {
  std::string name;
  std::string text;
  std::vector<TokenId> ids;
};

inline std::vector<RecordedIds> read_recorded_ids(const std::string& file) {
  std::vector<RecordedIds> recorded;
  const boost::json::value document = boost::json::parse(read_file(std::filesystem::path("tests/data/tokenizers") / file));
  for (const boost::json::value& entry : document.at("cases").as_array()) {
    RecordedIds one{.name = entry.at("name").as_string().c_str(), .text = std::string(entry.at("text").as_string()), .ids = {}};
    for (const boost::json::value& id : entry.at("ids").as_array()) one.ids.push_back(id.to_number<TokenId>());
    recorded.push_back(std::move(one));
  }
  return recorded;
}

// `tokenizer` gives the recorded ids, and the text back from them: at once, piece by piece, and streamed.
inline void expect_recorded(const Tokenizer& tokenizer, const RecordedIds& recorded) {
  SCOPED_TRACE(recorded.name);
  EXPECT_EQ(must(tokenizer.encode(recorded.text)), recorded.ids);
  EXPECT_EQ(must(tokenizer.decode(recorded.ids)), recorded.text);
  std::string pieces;
  std::string streamed;
  TextStream stream = must(TextStream::open(tokenizer, {.special_tokens = SpecialTokens::keep}));
  for (const TokenId id : recorded.ids) {
    pieces += must(tokenizer.piece(id));
    streamed += must(stream.push(id)).text;
    EXPECT_TRUE(pieces.starts_with(streamed)) << "after " << pieces.size() << " bytes";
  }
  EXPECT_EQ(pieces, recorded.text);
  EXPECT_EQ(streamed + must(stream.finish()).text, recorded.text);
}

}  // namespace reckoner
