#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace reckoner {

Engine::Engine(const Model& model, const Catalogue& catalogue, const DeviceInfo& device, ThreadPool& pool, Precision precision,
               const EngineLimits& limits)
    : vocab_(model.config.vocab_size),
      limits_(limits),
      runner_(model, catalogue, device, pool, precision,
              {.max_tokens = limits.max_step_tokens,
               .max_samples = limits.max_sequences,
               .max_context = limits.max_context,
               .cache_type = limits.cache_type}),
      cache_(runner_.cache_layout(), KvPool::pages_for(limits.cache_tokens)) {
  CHECK(limits.max_step_tokens > limits.max_sequences, "each running sequence needs a row, and a prompt one more");
  runner_.use_cache(cache_.layout());
}

Result<std::int64_t> Engine::submit(Request request) {
  if (request.prompt.empty()) return Error{"prompt: expected at least one token, found none", "give a prompt"};
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= vocab_)
      return Error{fmt::format("prompt: expected token ids below {}, found {}", vocab_, id),
                   "check that the tokenizer belongs to this model"};
  }
  TRY(check(request.sampling, vocab_));
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room = std::min(limits_.max_context, limits_.cache_tokens) - prompt;
  if (room < 1 || request.max_tokens > room) {
    return Error{fmt::format("prompt and max_tokens: expected at most {} tokens together, found {} + {}", room + prompt, prompt,
                             std::max<std::int64_t>(request.max_tokens, 1)),
                 "shorten the prompt, lower max_tokens, or start with a larger context"};
  }
  if (request.max_tokens == 0) request.max_tokens = room;
  auto sequence = std::make_unique<Sequence>();
  sequence->number = next_number_++;
  sequence->tokens = request.prompt;
  for (const std::int32_t id : request.prompt) ++sequence->counts.prompt[id];
  sequence->request = std::move(request);
  waiting_.push_back(std::move(sequence));
  return waiting_.back()->number;
}

void Engine::cancel(std::int64_t number) {
  std::erase_if(waiting_, [&](const auto& sequence) { return sequence->number == number; });
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& sequence) { return sequence->number == number; });
  if (found != running_.end()) finish(**found);
}

void Engine::finish(const Sequence& sequence) {
  cache_.release(sequence.pages);
  std::erase_if(running_, [&](const auto& other) { return other.get() == &sequence; });
}

void Engine::admit() {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < limits_.max_sequences) {
    Sequence& next = *waiting_.front();
    // All pages that it can ever need, so that what has started can end.
    auto pages = cache_.allocate(KvPool::pages_for(static_cast<std::int64_t>(next.tokens.size()) + next.request.max_tokens));
    if (!pages) return;
    next.pages = std::move(*pages);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Engine::add_rows(Sequence& sequence, std::int64_t rows, std::vector<Share>& shares) {
  const bool to_the_end = sequence.computed + rows == static_cast<std::int64_t>(sequence.tokens.size());
  shares.push_back({.sequence = &sequence, .first_row = builder_.rows(), .rows = rows, .sample = to_the_end ? samples_++ : -1});
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t position = sequence.computed + i;
    const Sample sample = to_the_end && i + 1 == rows ? Sample::yes : Sample::no;
    builder_.add(sequence.tokens[static_cast<std::size_t>(position)], position, sequence.pages, sample);
  }
}

void Engine::plan(std::vector<Share>& shares) {
  builder_.clear();
  samples_ = 0;
  const auto left = [](const Sequence& sequence) { return static_cast<std::int64_t>(sequence.tokens.size()) - sequence.computed; };
  for (const auto& sequence : running_) {
    if (left(*sequence) == 1) add_rows(*sequence, 1, shares);
  }
  // The rest of the step goes to the oldest prompt that is not read yet.
  for (const auto& sequence : running_) {
    if (left(*sequence) == 1) continue;
    add_rows(*sequence, std::min(left(*sequence), limits_.max_step_tokens - builder_.rows()), shares);
    break;
  }
}

void Engine::place_fault(const std::vector<Share>& shares) {
  runner_.fault = {};
  for (const Share& share : shares) {
    const std::int64_t last = share.sequence->computed + share.rows - 1;
    if (share.sequence->number == inject.request && inject.position <= last && inject.position >= share.sequence->computed) {
      runner_.fault = {.place = inject.place, .row = share.first_row + share.rows - 1};
    }
  }
}

std::vector<TokenEvent> Engine::step() {
  admit();
  std::vector<Share> shares;
  plan(shares);
  if (shares.empty()) return {};
  place_fault(shares);
  const StepOutput output = runner_.run(builder_.batch());
  std::vector<TokenEvent> events;
  for (const Share& share : shares) commit(share, output, events);
  ++steps_;
  return events;
}

void Engine::commit(const Share& share, const StepOutput& output, std::vector<TokenEvent>& events) {
  Sequence& sequence = *share.sequence;
  const std::int32_t* bad = output.first_bad.i32() + share.first_row;
  const auto* first = std::find_if(bad, bad + share.rows, [](std::int32_t place) { return place != Guard::kClean; });
  if (first != bad + share.rows) {
    events.push_back({.request = sequence.number,
                      .finish = FinishReason::error,
                      .error = fmt::format("a value that is not finite at step {}, position {}: {}", steps_,
                                           sequence.computed + (first - bad), GuardPlace::name(*first))});
    return finish(sequence);
  }
  sequence.computed += share.rows;
  if (share.sample < 0) return;
  events.push_back(take_token(share, output));
  if (events.back().finish != FinishReason::none) finish(sequence);
}

TokenEvent Engine::take_token(const Share& share, const StepOutput& output) {
  Sequence& sequence = *share.sequence;
  const std::span<const float> logits(output.logits.f32() + share.sample * vocab_, static_cast<std::size_t>(vocab_));
  TokenEvent event{.request = sequence.number};
  if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
    event.finish = FinishReason::error;
    event.error = fmt::format("a value that is not finite at step {}, position {}: the logits", steps_, sequence.computed - 1);
    return event;
  }
  const SampledToken sampled =
      sampler_.sample(logits, sequence.request.sampling, sequence.counts, static_cast<std::uint64_t>(sequence.output()));
  sequence.tokens.push_back(sampled.token);
  ++sequence.counts.output[sampled.token];
  event.token = sampled.token;
  event.logprob = sampled.logprob;
  const std::vector<std::int32_t>& stops = sequence.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) {
    event.finish = FinishReason::stop;
  } else if (sequence.output() >= sequence.request.max_tokens) {
    event.finish = FinishReason::length;
  }
  return event;
}

}  // namespace reckoner
