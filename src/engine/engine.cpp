#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace reckoner {
namespace {

bool contains(const std::vector<std::int32_t>& tokens, std::int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

Status check_count(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return {};
  return Error{fmt::format("{}: expected a number from 0 to {}, found {}", name, most, value),
               fmt::format("give {} a value in that range, or leave it out", name)};
}

// Tokens that may not come now because the output is too short for an end; sorted.
std::vector<std::int32_t> forbidden_tokens(const Sequence& sequence) {
  const Request& request = sequence.request;
  if (sequence.output() >= request.min_tokens) return {};
  std::vector<std::int32_t> forbidden = request.stop_tokens;
  if (!request.ignore_eos) forbidden.insert(forbidden.end(), request.end_tokens.begin(), request.end_tokens.end());
  std::sort(forbidden.begin(), forbidden.end());
  return forbidden;
}

}  // namespace

StepLimits step_limits(const EngineLimits& limits) {
  return {.max_tokens = limits.max_step_tokens,
          .max_samples = limits.max_sequences + limits.prompt_logprob_rows,
          .max_context = limits.max_context,
          .cache_type = limits.cache_type};
}

Engine::Engine(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
               const EngineLimits& limits)
    : Engine(std::make_unique<RunnerModel>(model, weights, device, pool, precision, step_limits(limits)), limits) {}

Engine::Engine(std::unique_ptr<StepModel> model, const EngineLimits& limits)
    : limits_(limits),
      model_(std::move(model)),
      vocab_(model_->vocab()),
      cache_(model_->cache_layout(), KvPool::pages_for(limits.cache_tokens), model_->memory()),
      tree_(cache_) {
  CHECK(limits.max_step_tokens > limits.max_sequences, "each running sequence needs a row, and a prompt one more");
  model_->use_cache(cache_.layout(), cache_.pages());
}

StepRunner& Engine::runner() {
  StepRunner* runner = model_->runner();
  CHECK(runner != nullptr, "this engine's model has no runner");
  return *runner;
}

Status Engine::check_request(const Request& request) const {
  if (request.prompt.empty()) return Error{"prompt: expected at least one token, found none", "give a prompt"};
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= vocab_)
      return Error{fmt::format("prompt: expected token ids below {}, found {}", vocab_, id),
                   "check that the tokenizer belongs to this model"};
  }
  TRY(check(request.sampling, vocab_));
  if (request.logprobs) TRY(check_count("logprobs", *request.logprobs, vocab_));
  if (request.prompt_logprobs) {
    TRY(check_count("prompt_logprobs", *request.prompt_logprobs, vocab_));
    if (limits_.prompt_logprob_rows == 0)
      return Error{"prompt_logprobs: this engine was started without room for them", "leave prompt_logprobs out"};
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room = longest_request() - prompt;
  if (request.max_tokens < 0) return Error{fmt::format("max_tokens: expected 0 or more, found {}", request.max_tokens), "raise it"};
  if (room < 1 || request.max_tokens > room) {
    return Error{fmt::format("prompt and max_tokens: expected at most {} tokens together, found {} + {}", longest_request(), prompt,
                             std::max<std::int64_t>(request.max_tokens, 1)),
                 "shorten the prompt, lower max_tokens, or start with a larger context"};
  }
  return check_count("min_tokens", request.min_tokens, request.max_tokens == 0 ? room : request.max_tokens);
}

Result<std::int64_t> Engine::submit(Request request) {
  TRY(check_request(request));
  auto sequence = std::make_unique<Sequence>();
  if (request.max_tokens == 0) request.max_tokens = longest_request() - static_cast<std::int64_t>(request.prompt.size());
  sequence->number = next_number_++;
  sequence->tokens = request.prompt;
  for (const std::int32_t id : request.prompt) ++sequence->counts.prompt[id];
  if (request.constraint) sequence->mask.resize(static_cast<std::size_t>(mask_words(vocab_)));
  sequence->request = std::move(request);
  sequence->submitted = std::chrono::steady_clock::now();
  waiting_.push_back(std::move(sequence));
  ++stats_.submitted;
  return waiting_.back()->number;
}

void Engine::cancel(std::int64_t number) {
  const auto is_it = [&](const auto& sequence) { return sequence->number == number; };
  stats_.cancelled += static_cast<std::int64_t>(std::erase_if(waiting_, is_it));  // waiting ones hold no pages
  const auto found = std::find_if(running_.begin(), running_.end(), is_it);
  if (found == running_.end()) return;
  ++stats_.cancelled;
  finish(**found);
}

void Engine::finish(Sequence& sequence) {
  release_pages(sequence);
  std::erase_if(running_, [&](const auto& other) { return other.get() == &sequence; });
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<std::int64_t>(running_.size());
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.pages = cache_.pages();
  stats.free_pages = cache_.free_pages();
  stats.cached_pages = tree_.evictable_pages();
  stats.used_pages = stats.pages - stats.free_pages - stats.cached_pages;
  return stats;
}

Fault Engine::fault_for(const std::vector<Share>& shares) const {
  for (const Share& share : shares) {
    const std::int64_t last = share.sequence->computed + share.rows - 1;
    const bool is_meant = inject.request == InjectedFault::kEveryRequest || share.sequence->number == inject.request;
    if (is_meant && inject.position <= last && inject.position >= share.sequence->computed)
      return {.place = inject.place, .row = share.first_row + share.rows - 1};
  }
  return {};
}

void Engine::start_masks(const std::vector<Share>& shares) {
  std::vector<MaskWorker::Job> jobs;
  for (const Share& share : shares) {
    Sequence& sequence = *share.sequence;
    if (share.ends && sequence.request.constraint) jobs.push_back({.constraint = sequence.request.constraint.get(), .bits = sequence.mask});
  }
  masks_.start(std::move(jobs));
}

std::vector<TokenEvent> Engine::step() {
  const auto start = std::chrono::steady_clock::now();
  admit();
  const std::vector<Share> shares = plan();
  if (shares.empty()) {
    CHECK(running_.empty(), "a step without work while requests run");
    return {};
  }
  start_masks(shares);
  const StepOutput output = model_->run(builder_.batch(), fault_for(shares));
  masks_.wait();
  const std::vector<Draw> draws = draw_tokens(shares, output);
  measure(output);
  std::vector<std::string> errors;
  for (std::size_t i = 0; i < shares.size(); ++i) errors.push_back(what_is_not_finite(shares[i], output, draws[i]));
  show_bad_step(shares, output, draws, errors);
  std::vector<TokenEvent> events;
  for (std::size_t i = 0; i < shares.size(); ++i) commit(shares[i], output, draws[i], std::move(errors[i]), events);
  stats_.device_failed = !output.error.empty();
  ++stats_.steps;
  stats_.last_step_rows = builder_.rows();
  stats_.computed_tokens += builder_.rows();
  stats_.step_times.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return events;
}

// NaN rows are left out of the ranges: the guard reports them.
void Engine::measure(const StepOutput& output) {
  stats_.rms.resize(output.rms.shape.rank() == 0 ? 0 : static_cast<std::size_t>(output.rms.dim(0)));
  for (std::size_t place = 0; place < stats_.rms.size(); ++place) {
    const Tensor row = output.rms.rows(static_cast<std::int64_t>(place), 1);
    ValueRange range{.low = std::numeric_limits<float>::infinity(), .high = 0};
    for (const float value : std::span(row.f32(), static_cast<std::size_t>(row.dim(1)))) {
      range.low = std::fmin(range.low, value);
      range.high = std::fmax(range.high, value);
    }
    stats_.rms[place] = range;
  }
}

// What of a step can be done for each sequence on its own, by as many threads as there are: vocabularies are large.
std::vector<Engine::Draw> Engine::draw_tokens(const std::vector<Share>& shares, const StepOutput& output) {
  std::vector<Draw> draws(shares.size());
  if (!output.error.empty()) return draws;  // there are no logits
  ThreadPool* const pool = model_->pool();
  samplers_.resize(pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads()));
  const auto draw_one = [&](std::int64_t i, int thread) {
    ThreadPool* const helpers = shares.size() == 1 ? pool : nullptr;
    draws[static_cast<std::size_t>(i)] =
        draw(shares[static_cast<std::size_t>(i)], output, samplers_[static_cast<std::size_t>(thread)], helpers);
  };
  if (pool != nullptr && shares.size() > 1) {
    pool->parallel_for(static_cast<std::int64_t>(shares.size()), draw_one);
  } else {
    for (std::size_t i = 0; i < shares.size(); ++i) draw_one(static_cast<std::int64_t>(i), 0);
  }
  return draws;
}

// Reads the sequence and changes nothing of it.
Engine::Draw Engine::draw(const Share& share, const StepOutput& output, Sampler& sampler, ThreadPool* helpers) const {
  Draw draw;
  const std::int64_t samples = share.prompt_samples + (share.ends ? 1 : 0);
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    if (all_finite(logits_row(output, share.first_sample + sample))) continue;
    draw.bad_sample = sample;
    return draw;
  }
  if (!share.ends) return draw;
  const Sequence& sequence = *share.sequence;
  const Request& request = sequence.request;
  const std::span<const float> logits = logits_row(output, share.first_sample + share.prompt_samples);
  const std::vector<std::int32_t> forbidden = forbidden_tokens(sequence);
  draw.token = sampler.sample(logits, request.sampling, sequence.counts, static_cast<std::uint64_t>(sequence.output()),
                              {.allowed = sequence.mask, .forbidden = forbidden}, helpers);
  if (!draw.token || !request.logprobs) return draw;
  const double log_sum = log_sum_exp(logits);
  draw.logprob = logprob_of(logits, log_sum, *draw.token);
  if (*request.logprobs > 0) draw.top = top_logprobs(logits, log_sum, *request.logprobs);
  return draw;
}

// Empty if the device did its work and all is well with the rows and the logits of a share.
std::string Engine::what_is_not_finite(const Share& share, const StepOutput& output, const Draw& draw) {
  if (!output.error.empty()) return fmt::format("the device failed at step {}: {}", stats_.steps, output.error);
  const std::int32_t* bad = output.first_bad.i32() + share.first_row;
  const auto is_bad = [](std::int32_t place) { return place != Guard::kClean; };
  const auto* first = std::find_if(bad, bad + share.rows, is_bad);
  stats_.non_finite_rows += std::count_if(bad, bad + share.rows, is_bad);
  if (first != bad + share.rows) {
    return fmt::format("a value that is not finite at step {}, position {}: {}", stats_.steps, share.sequence->computed + (first - bad),
                       GuardPlace::name(*first));
  }
  if (!draw.bad_sample) return {};
  ++stats_.non_finite_rows;
  const bool in_prompt = *draw.bad_sample < share.prompt_samples;
  const std::int64_t position = in_prompt ? share.first_prompt_token + *draw.bad_sample - 1 : share.sequence->length() - 1;
  return fmt::format("a value that is not finite at step {}, position {}: the logits", stats_.steps, position);
}

// The first bad row of the step. What decides about each share is in `errors` and `draws` by now: should the step come out otherwise when
// somebody runs it again, that changes nothing.
void Engine::show_bad_step(const std::vector<Share>& shares, const StepOutput& output, const std::vector<Draw>& draws,
                           const std::vector<std::string>& errors) {
  StepRunner* const runner = model_->runner();
  // One of several ranks cannot run a step again without the others.
  if (!on_bad_step || runner == nullptr || model_->ranks() > 1 || !output.error.empty()) return;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (errors[i].empty()) continue;
    const Share& share = shares[i];
    const std::int32_t* const bad = output.first_bad.i32() + share.first_row;
    const std::int32_t* const first = std::find_if(bad, bad + share.rows, [](std::int32_t place) { return place != Guard::kClean; });
    std::int64_t row = share.first_row + (first - bad);
    const std::int32_t place = first == bad + share.rows ? Guard::kClean : *first;
    const Batch batch = builder_.batch();
    if (place == Guard::kClean) row = batch.sample_rows.i32()[share.first_sample + draws[i].bad_sample.value_or(0)];
    on_bad_step({.step = stats_.steps,
                 .request = share.sequence->number,
                 .row = row,
                 .position = batch.places.positions.i32()[row],
                 .place = place,
                 .batch = batch,
                 .runner = *runner});
    return;
  }
}

void Engine::commit(const Share& share, const StepOutput& output, const Draw& draw, std::string error, std::vector<TokenEvent>& events) {
  Sequence& sequence = *share.sequence;
  if (!error.empty()) {
    events.push_back({.request = sequence.number, .finish = FinishReason::error, .error = std::move(error)});
    ++stats_.failed;
    distrust_pages(sequence);
    return finish(sequence);
  }
  sequence.computed += share.rows;
  share_computed(sequence);
  take_prompt_logprobs(share, output);
  if (!share.ends) return;
  events.push_back(take_token(share, draw));
  const FinishReason reason = events.back().finish;
  if (reason == FinishReason::none) return;
  ++(reason == FinishReason::error ? stats_.failed : stats_.finished);
  finish(sequence);
}

void Engine::take_prompt_logprobs(const Share& share, const StepOutput& output) {
  Sequence& sequence = *share.sequence;
  for (std::int64_t i = 0; i < share.prompt_samples; ++i) {
    const std::span<const float> logits = logits_row(output, share.first_sample + i);
    const double log_sum = log_sum_exp(logits);
    const std::int32_t token = sequence.request.prompt[static_cast<std::size_t>(share.first_prompt_token + i)];
    sequence.prompt_logprobs.push_back(
        {.logprob = logprob_of(logits, log_sum, token), .top = top_logprobs(logits, log_sum, *sequence.request.prompt_logprobs)});
  }
  sequence.prompt_logprobs_done += share.prompt_samples;
}

TokenEvent Engine::take_token(const Share& share, const Draw& draw) {
  Sequence& sequence = *share.sequence;
  const Request& request = sequence.request;
  const std::optional<std::int32_t>& token = draw.token;
  TokenEvent event{.request = sequence.number, .cached_tokens = sequence.cached};
  if (!token) {
    event.finish = FinishReason::error;
    event.error = fmt::format("the constraint allows no token after {} tokens of output", sequence.output());
    return event;
  }
  if (sequence.output() == 0) {
    stats_.prompt_tokens += sequence.prompt_length();
    stats_.cached_tokens += sequence.cached;
    event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  }
  sequence.tokens.push_back(*token);
  ++sequence.counts.output[*token];
  ++stats_.generated_tokens;
  event.token = *token;
  event.logprob = draw.logprob;
  event.top_logprobs = draw.top;
  if (contains(request.stop_tokens, *token) || (!request.ignore_eos && contains(request.end_tokens, *token))) {
    event.finish = FinishReason::stop;
  } else if (request.constraint && !request.constraint->accept(*token)) {
    event.finish = FinishReason::error;
    event.error = fmt::format("the constraint refuses token {}, which it had allowed", *token);
  } else if (request.constraint && request.constraint->finished()) {
    event.finish = FinishReason::complete;
  } else if (sequence.output() >= request.max_tokens) {
    event.finish = FinishReason::length;
  }
  return event;
}

}  // namespace reckoner
