// Sequence: a request on its way. CONTRACT.md says what holds for one.
#pragma once

#include <chrono>

#include "engine/request.h"

namespace reckoner {

struct Sequence {
  std::int64_t number = 0;
  Request request;
  std::vector<std::int32_t> tokens;  // prompt, then output
  std::int64_t computed = 0;         // tokens whose cache rows are written
  std::vector<std::int32_t> pages;   // its page table
  std::int64_t shared = 0;           // how many of its first pages are the prefix tree's
  bool cacheable = true;             // its pages may enter the tree
  TokenCounts counts;
  std::int64_t cached = 0;       // prompt tokens found in the tree before they were computed the first time
  std::int64_t preemptions = 0;  // times that it lost its pages
  std::int64_t granted = 0;      // while a step is planned: rows of the prompt that it may have
  std::vector<std::uint32_t> mask = {};
  std::vector<PromptLogprob> prompt_logprobs = {};
  std::int64_t prompt_logprobs_done = 0;
  std::chrono::steady_clock::time_point submitted = {};

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t prompt_length() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t output() const { return length() - prompt_length(); }
  std::int64_t left() const { return length() - computed; }
  // Tokens that it can have at most.
  std::int64_t longest() const { return prompt_length() + request.max_tokens; }
  // Rows of its prompt still have to report logprobs.
  bool owes_prompt_logprobs() const { return request.prompt_logprobs && prompt_logprobs_done + 1 < prompt_length(); }
  std::span<const std::int32_t> tokens_of_page(std::int64_t page) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(page * kPageTokens), kPageTokens);
  }
};

}  // namespace reckoner
