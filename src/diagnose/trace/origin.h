// Origin: where in a step a value first stopped being finite, and what is behind it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/trace/bundle.h"
#include "diagnose/trace/step_probe.h"
#include "diagnose/trace/weight_index.h"
#include "model/forward.h"

namespace reckoner::trace {

enum class Cause : std::uint8_t {
  weight_scale,  // a block scale of the weight is not finite
  weight_value,  // an element of the weight is not
  vector_value,  // an element of a norm's weight or a bias is not
  kernel,        // inputs and weight are finite, and so is what the op's reference makes of them: the kernel is wrong
  overflow,      // inputs and weight are finite; the reference leaves the range of float as well
  cache,         // a cache row that an earlier step wrote
  overwritten,   // what one op had left finite, the next found otherwise: no op of the step wrote it
};
// "weight_scale"
std::string_view name(Cause cause);

struct Origin {
  std::int64_t step = 0;
  CallName call;
  std::string kernel;
  int rank = 0;                    // of the ranks that share a model's layers; there is one
  std::string argument;            // the first that is not finite: "y"
  std::vector<std::int64_t> rows;  // of it that are not, the first eight
  std::int64_t bad_rows = 0;       // all of them
  std::int64_t row = 0;
  std::int64_t column = 0;
  float value = 0;
  std::int64_t token = -1;  // the row of the step that it belongs to; -1: not known
  std::int64_t position = -1;
  std::int64_t expert = -1;
  Cause cause = Cause::kernel;
  std::string detail;                    // of the cause, in words
  std::string weight;                    // the module whose weight the op reads, or the vector's name; may be empty
  std::optional<FilePlace> place;        // of what is not finite, or else of the weight's row
  std::optional<FilePlace> scale_place;  // of the block scale that belongs to it
  std::int64_t weight_row = -1;
  std::int64_t weight_col = -1;
  std::string bundle;  // where it was written; empty: it was not
  std::string bundle_error;

  // One line.
  std::string sentence() const;
};

struct BundleWish {
  std::filesystem::path path = {};  // empty: none is wanted
  BundleAbout about = {};
  BundleLimits limits = {};
};

// What went wrong, as a bundle says it: place, kernel, cause.
BundleAbout about_origin(const Origin& origin);

// The first layer that need be looked at when the guard found this place bad first; kClean: it found none, the logits are bad.
std::int64_t layer_of(std::int32_t place, std::int64_t layers);

// Runs the step again, twice, with a look at every op from `first_layer` on, and at those outside of the layers: what the guard found bad
// first was made in the layer of its place. Nothing: everything was finite this time. The runner is left as it was.
std::optional<Origin> find_origin(StepRunner& runner, const Batch& batch, std::int64_t step, const WeightIndex& weights,
                                  const BundleWish& wish = {}, std::int64_t first_layer = 0);

}  // namespace reckoner::trace
