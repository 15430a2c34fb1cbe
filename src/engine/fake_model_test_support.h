// FakeModel: a StepModel whose logits are a hash of the sequence's tokens, read back from the cache through the page table. A wrong page,
// a stale row or a row that was never written gives other tokens than predict() says. And a constraint to go with it.
#pragma once

#include <cstring>
#include <limits>

#include "engine/engine.h"

namespace reckoner {

inline constexpr std::int32_t kFakeVocab = 50;

class FakeModel final : public StepModel {
 public:
  // Where injected faults show: in the row itself, or only in rows of later steps that read it.
  static constexpr std::int32_t kAtOnce = 0;
  static constexpr std::int32_t kLater = 1;

  explicit FakeModel(std::int64_t max_rows)
      : logits_(max_rows * kFakeVocab * size_bytes(DType::f32)), first_bad_(max_rows * size_bytes(DType::i32)) {}

  std::int64_t vocab() const override { return kFakeVocab; }
  KvLayout cache_layout() const override {
    KvLayout layout;
    layout.keys = {{.page_bytes = kPageTokens * 8, .row_elements = 2, .dtype = DType::f32}};
    layout.page_bytes = kPageTokens * 8;
    return layout;
  }
  void use_cache(const KvLayout& placed, std::int64_t) override { view_ = placed.keys[0]; }

  StepOutput run(const Batch& batch, const Fault& fault) override {
    const std::int64_t rows = batch.tokens.dim(0);
    const std::int32_t* positions = batch.places.positions.i32();
    StepOutput output{.logits = logits_.tensor(DType::f32, {batch.sample_rows.dim(0), kFakeVocab}),
                      .first_bad = first_bad_.tensor(DType::i32, {rows})};
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool bad = fault.place != Guard::kClean && fault.row == row;
      const Row written{.token = bad ? kBad : batch.tokens.i32()[row], .position = positions[row]};
      std::memcpy(view_.row(batch.places.pages[static_cast<std::size_t>(row)], positions[row]), &written, sizeof(written));
    }
    std::vector<std::uint64_t> hashes;
    for (std::int64_t row = 0; row < rows; ++row) {
      bool bad = false;
      hashes.push_back(read_back(batch.places.pages[static_cast<std::size_t>(row)], positions[row], bad));
      const bool hidden = fault.row == row && fault.place == kLater;
      output.first_bad.i32()[row] = bad && !hidden ? GuardPlace::attention(0) : Guard::kClean;
    }
    for (std::int64_t sample = 0; sample < batch.sample_rows.dim(0); ++sample)
      write_logits(hashes[static_cast<std::size_t>(batch.sample_rows.i32()[sample])], output.logits.f32() + sample * kFakeVocab);
    return output;
  }

  // The logits after these tokens.
  static std::vector<float> logits_after(std::span<const std::int32_t> tokens) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) hash = mix(hash, {tokens[i], static_cast<std::int32_t>(i)});
    std::vector<float> logits(kFakeVocab);
    write_logits(hash, logits.data());
    return logits;
  }

 private:
  static constexpr std::int32_t kBad = -1;
  struct Row {
    std::int32_t token;
    std::int32_t position;
  };
  static std::uint64_t mix(std::uint64_t hash, const Row& row) {
    hash ^= static_cast<std::uint64_t>(row.token) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(row.position) * 0xff51afd7ed558ccdu;
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 29);
  }
  static void write_logits(std::uint64_t hash, float* logits) {
    for (std::int32_t i = 0; i < kFakeVocab; ++i) logits[i] = static_cast<float>(mix(hash, {i, 7}) % 1000) / 100;
  }
  std::uint64_t read_back(const std::int32_t* pages, std::int32_t last, bool& bad) const {
    std::uint64_t hash = 0;
    for (std::int32_t position = 0; position <= last; ++position) {
      Row row;
      std::memcpy(&row, view_.row(pages, position), sizeof(row));
      bad = bad || row.token == kBad;
      hash = mix(hash, row);
    }
    return hash;
  }

  CacheView view_;
  Buffer logits_;
  Buffer first_bad_;
};

struct Answer {
  std::vector<std::int32_t> tokens = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};
  std::int64_t cached_tokens = 0;
  std::vector<double> logprobs = {};
  std::vector<PromptLogprob> prompt_logprobs = {};
};

// What a request without a constraint answers, one token after the other, by the same rules and without an engine.
inline Answer predict(const Request& request, std::int64_t longest) {
  Answer answer;
  std::vector<std::int32_t> tokens = request.prompt;
  TokenCounts counts;
  for (const std::int32_t token : tokens) ++counts.prompt[token];
  std::vector<std::int32_t> ends = request.stop_tokens;
  if (!request.ignore_eos) ends.insert(ends.end(), request.end_tokens.begin(), request.end_tokens.end());
  std::sort(ends.begin(), ends.end());
  const std::int64_t most = request.max_tokens > 0 ? request.max_tokens : longest - static_cast<std::int64_t>(tokens.size());
  while (answer.finish == FinishReason::none) {
    const std::vector<float> logits = FakeModel::logits_after(tokens);
    const auto made = static_cast<std::int64_t>(answer.tokens.size());
    const SamplingMask mask{.forbidden = made < request.min_tokens ? std::span<const std::int32_t>(ends) : std::span<const std::int32_t>()};
    const std::int32_t token = *Sampler().sample(logits, request.sampling, counts, static_cast<std::uint64_t>(made), mask);
    tokens.push_back(token);
    answer.tokens.push_back(token);
    ++counts.output[token];
    if (std::binary_search(ends.begin(), ends.end(), token)) {
      answer.finish = FinishReason::stop;
    } else if (made + 1 == most) {
      answer.finish = FinishReason::length;
    }
  }
  return answer;
}

// Even after odd and odd after even tokens, `length` of them.
class AlternatingConstraint final : public TokenConstraint {
 public:
  explicit AlternatingConstraint(std::int64_t length) : length_(length) {}
  void compute_mask(std::span<std::uint32_t> bits) override {
    for (std::uint32_t& word : bits) word = accepted_ % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  }
  bool accept(std::int32_t token) override { return token % 2 == accepted_++ % 2; }
  bool finished() override { return accepted_ == length_; }

 private:
  std::int64_t length_;
  std::int64_t accepted_ = 0;
};

}  // namespace reckoner
