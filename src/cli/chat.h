// Chat: questions line by line, the history kept.
#pragma once

#include <functional>

#include "cli/console.h"
#include "cli/prompt.h"

namespace reckoner {

// Answers the conversation so far and adds what it answered to it.
using AnswerConversation = std::function<Status(Conversation& conversation)>;

// Reads lines from stdin until /exit or the end of input. An error of an answer is shown, its question is taken back, and the chat
// goes on. `first` holds what every conversation starts with, e.g. a system message.
Result<int> chat(Console& console, const Conversation& first, const AnswerConversation& answer);

}  // namespace reckoner
