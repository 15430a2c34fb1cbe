// What an answer must keep to: a form that was asked for, or calls of tools. What the model thinks before it answers is free.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/constraint.h"
#include "server/requests/chat_request.h"
#include "server/service.h"

namespace reckoner {

// One for each answer of a request.
using AnswerConstraints = std::vector<std::shared_ptr<TokenConstraint>>;

struct AnswerRule {
  const AnswerFormat& format;
  std::span<const ToolSignature> tools = {};  // those that the answer may call
  ToolChoice choice = {};
  CallCount count = CallCount::one_or_more;
  std::optional<std::string_view> prompt = {};  // a chat's: its end says whether the model is to think first
};

// Empty if the answer is free. Errors, each naming the request's field: no grammar follows from it (a schema that is not supported, an
// expression with a mistake, tools of a model that calls none).
Result<AnswerConstraints> constrain_answers(const Service& service, const AnswerRule& rule, std::size_t count);

}  // namespace reckoner
