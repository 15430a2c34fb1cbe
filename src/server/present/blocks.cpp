#include "server/present/blocks.h"

#include <utility>

namespace reckoner {

std::vector<Block> blocks_of(const Choice& choice) {
  std::vector<Block> blocks;
  if (!choice.reasoning.empty()) blocks.push_back({.kind = Block::Kind::reasoning, .text = choice.reasoning});
  if (!choice.content.empty()) blocks.push_back({.kind = Block::Kind::text, .text = choice.content});
  for (const ChatToolCall& call : choice.tool_calls)
    blocks.push_back({.kind = Block::Kind::call, .text = call.arguments, .call = {.id = call.id, .name = call.name, .arguments = {}}});
  return blocks;
}

void BlockStream::add(const OutputDelta& delta) {
  add_piece(Block::Kind::reasoning, delta.reasoning);
  add_piece(Block::Kind::text, delta.content);
  for (const ToolCallDelta& call : delta.tool_calls) add_call(call);
}

void BlockStream::add_piece(Block::Kind kind, const std::string& piece) {
  if (piece.empty()) return;
  if (!is_open_ || blocks_.back().kind != kind) begin({.kind = kind});
  extend(piece);
}

void BlockStream::add_call(const ToolCallDelta& delta) {
  const bool goes_on = is_open_ && blocks_.back().kind == Block::Kind::call && call_ == delta.index;
  call_ = delta.index;
  if (!goes_on) begin({.kind = Block::Kind::call, .text = {}, .call = {.id = delta.id, .name = delta.name, .arguments = {}}});
  if (!delta.arguments.empty()) extend(delta.arguments);
}

void BlockStream::begin(Block block) {
  end();
  blocks_.push_back(std::move(block));
  is_open_ = true;
  open(blocks_.size() - 1, blocks_.back());
}

void BlockStream::extend(const std::string& piece) {
  blocks_.back().text += piece;
  grow(blocks_.size() - 1, blocks_.back(), piece);
}

void BlockStream::end() {
  if (std::exchange(is_open_, false)) close(blocks_.size() - 1, blocks_.back());
}

}  // namespace reckoner
