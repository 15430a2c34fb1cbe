// BatchBuilder: collects the rows of a step and owns the arrays that the Batch refers to.
#pragma once

#include <cstdint>
#include <vector>

#include "model/forward.h"

namespace reckoner {

enum class Sample : std::uint8_t { no, yes };

class BatchBuilder {
 public:
  // A row: token `id` at `position` of the sequence with these pages (which must stay where they are until the step has run).
  void add(std::int32_t id, std::int64_t position, const std::vector<std::int32_t>& pages, Sample sample) {
    if (sample == Sample::yes) sample_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(id);
    positions_.push_back(static_cast<std::int32_t>(position));
    pages_.push_back(pages.data());
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }
  void clear() {
    tokens_.clear();
    positions_.clear();
    sample_rows_.clear();
    pages_.clear();
  }
  // Valid until the next add() or clear().
  Batch batch() {
    return {.tokens = view(tokens_), .places = {.positions = view(positions_), .pages = pages_}, .sample_rows = view(sample_rows_)};
  }

 private:
  static Tensor view(std::vector<std::int32_t>& values) {
    return {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::i32, .shape = {static_cast<std::int64_t>(values.size())}};
  }
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> sample_rows_;
  std::vector<const std::int32_t*> pages_;
};

}  // namespace reckoner
