// Blocks: an answer as a row of pieces of one kind each, as the APIs of Anthropic and OpenAI's Responses show it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/generation.h"

namespace reckoner {

struct Block {
  enum class Kind : std::uint8_t { reasoning, text, call };
  Kind kind = Kind::text;
  std::string text = {};   // of a call: its arguments
  ChatToolCall call = {};  // id and name
};

std::vector<Block> blocks_of(const Choice& choice);

// Cuts a stream into blocks: one is open at a time.
class BlockStream {
 public:
  virtual ~BlockStream() = default;
  void add(const OutputDelta& delta);
  void end();

 protected:
  virtual void open(std::size_t index, const Block& block) = 0;
  virtual void grow(std::size_t index, const Block& block, const std::string& piece) = 0;
  virtual void close(std::size_t index, const Block& block) = 0;
  const std::vector<Block>& blocks() const { return blocks_; }  // the last one is open, unless the stream has ended

 private:
  void add_piece(Block::Kind kind, const std::string& piece);
  void add_call(const ToolCallDelta& delta);
  void begin(Block block);
  void extend(const std::string& piece);

  std::vector<Block> blocks_;
  std::size_t call_ = 0;  // which call the open block is
  bool is_open_ = false;
};

}  // namespace reckoner
