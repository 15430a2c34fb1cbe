#include "diagnose/trace/bounds.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "diagnose/admission/attend_cases.h"
#include "diagnose/admission/gated_cases.h"
#include "diagnose/admission/linear_cases.h"
#include "diagnose/admission/rows_cases.h"

namespace reckoner::trace {
namespace {

using admission::kUlp;
using Floats = std::vector<float>;

Floats magnitudes_of(const Tensor& tensor) {
  Floats values(tensor.f32(), tensor.f32() + tensor.shape.elements());
  for (float& value : values) value = std::fabs(value);
  return values;
}

Tensor view(Floats& values, const Shape& shape) {
  return {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::f32, .shape = shape};
}

// |w| as a plain matrix.
Weight plain(const Floats& values, const Weight& like) {
  return {.format = QuantFormat::f32, .rows = like.rows, .cols = like.cols, .data = reinterpret_cast<const std::byte*>(values.data())};
}

Floats magnitudes_of(const Weight& w) {
  Floats values = admission::dequantised(w);
  for (float& value : values) value = std::fabs(value);
  return values;
}

// |error| <= tolerance * the sum of magnitudes behind an element, plus what denormals may lose. The sums: the op's reference on magnitudes.
template <class Args>
std::vector<double> linear_bounds(const Args& args, Tensor Args::*input, Weight Args::*weight, std::int64_t terms, double tolerance) {
  Floats x = magnitudes_of(args.*input);
  const Floats w = magnitudes_of(args.*weight);
  Floats y(static_cast<std::size_t>(args.y.shape.elements()));
  Args absolute = args;
  absolute.*input = view(x, (args.*input).shape);
  absolute.*weight = plain(w, args.*weight);
  absolute.y = view(y, args.y.shape);
  reference(absolute);
  std::vector<double> bounds;
  for (const float magnitude : y) bounds.push_back(tolerance * magnitude + static_cast<double>(terms) * 0x1p-126);
  return bounds;
}

// The sum of squares has only positive terms: off by width ulp, its root by half of that; a few ulp for root, division and products.
double norm_bound(std::int64_t width, double value) { return kUlp * (static_cast<double>(width) / 2 + 8) * std::fabs(value) + 0x1p-126; }

double largest_of(const Tensor& tensor) {
  double largest = 0;
  for (const float value : magnitudes_of(tensor)) largest = std::fmax(largest, value);
  return largest;
}

// `bound(element, value)` of each stored element; 0 where the bits must agree; else with one step of what the cache can hold.
template <class Bound>
std::vector<double> store_bounds(const CacheView& cache, const TokenPlaces& places, const Bound& bound) {
  std::vector<double> bounds;
  for (std::int64_t token = 0; token < places.positions.dim(0); ++token) {
    const Floats row = cache_row(cache, places, token, places.positions.i32()[token]);
    for (std::int64_t i = 0; i < std::ssize(row); ++i) {
      const double own = bound(i, static_cast<double>(row[static_cast<std::size_t>(i)]));
      bounds.push_back(own == 0 ? 0 : own + admission::step_at(cache, row, i));
    }
  }
  return bounds;
}

std::vector<std::int64_t> attended(const AttendLatentArgs& args, std::int64_t token) {
  std::vector<std::int64_t> positions;
  if (args.selection.counts.empty()) {
    for (std::int64_t position = 0; position <= args.places.positions.i32()[token]; ++position) positions.push_back(position);
  } else {
    const std::int32_t* const selected = args.selection.positions.i32() + token * args.selection.top_k();
    positions.assign(selected, selected + args.selection.counts.i32()[token]);
  }
  return positions;
}

}  // namespace

Floats cache_row(const CacheView& cache, const TokenPlaces& places, std::int64_t token, std::int64_t position) {
  Floats row(static_cast<std::size_t>(cache.row_elements));
  read_row(cache, cache.row(places.pages[static_cast<std::size_t>(token)], position), 0, cache.row_elements, row.data());
  return row;
}

std::vector<double> allowed(const LinearArgs& before, const LinearArgs&, std::string_view) {
  return linear_bounds(before, &LinearArgs::x, &LinearArgs::w, before.w.cols, linear_tolerance(before.precision, before.w.cols));
}

// As its part alone of x, or of the norm, which is off by a little itself.
std::vector<double> allowed(const LinearGroupArgs& before, const LinearGroupArgs&, std::string_view output) {
  Floats normed(static_cast<std::size_t>(before.x.shape.elements()));
  Tensor x = before.x;
  if (!before.norm.empty()) {
    x = view(normed, before.x.shape);
    reference(norm_of(before, x));
  }
  const int part = part_of(output);
  return linear_bounds(linear_of(before, part, x), &LinearArgs::x, &LinearArgs::w, before.x.dim(1), linear_group_tolerance(before, part));
}

std::vector<double> allowed(const LatentQueryArgs& before, const LatentQueryArgs&, std::string_view) {
  return linear_bounds(before, &LatentQueryArgs::q, &LatentQueryArgs::kv_b, before.nope, linear_tolerance(before.precision, before.nope));
}

std::vector<double> allowed(const LatentValueArgs& before, const LatentValueArgs&, std::string_view) {
  return linear_bounds(before, &LatentValueArgs::x, &LatentValueArgs::kv_b, before.kv_b.cols,
                       linear_tolerance(before.precision, before.kv_b.cols));
}

std::vector<double> allowed(const LinearExpertsArgs& before, const LinearExpertsArgs&, std::string_view) {
  const std::int64_t terms = before.experts.front().cols;
  const double tolerance = linear_tolerance(before.precision, terms);
  std::vector<double> bounds;
  for (const float magnitude : admission::experts_magnitudes(before))
    bounds.push_back(tolerance * magnitude + static_cast<double>(terms) * 0x1p-126);
  return bounds;
}

std::vector<double> allowed(const GatedLinearArgs& before, const GatedLinearArgs&, std::string_view) {
  return admission::gated_bounds(before);
}
std::vector<double> allowed(const GatedExpertsArgs& before, const GatedExpertsArgs&, std::string_view) {
  return admission::gated_bounds(before);
}
std::vector<double> allowed(const ExpertsCombineArgs& before, const ExpertsCombineArgs&, std::string_view) {
  return admission::combine_bounds(before);
}

std::vector<double> allowed(const RmsNormArgs&, const RmsNormArgs& after, std::string_view output) {
  std::vector<double> bounds;
  const bool in_place = output == "x" && after.x.data == after.y.data;
  if (output != "y" && output != "guard.rms" && !in_place) return bounds;
  const Tensor& values = output == "guard.rms" ? after.guard.rms : after.y;
  for (std::int64_t i = 0; i < values.shape.elements(); ++i) bounds.push_back(norm_bound(after.x.dim(1), values.f32()[i]));
  return bounds;
}

// exp is off by 4 ulp in a kernel and 2 in the reference, then an addition, a division and a product each; where exp(-gate) leaves the
// range of float, both are below |gate * up| * 2^-125.
std::vector<double> allowed(const SiluMulArgs& before, const SiluMulArgs& after, std::string_view) {
  std::vector<double> bounds;
  for (std::int64_t i = 0; i < after.y.shape.elements(); ++i) {
    const double gate = std::fabs(static_cast<double>(before.gate.f32()[i]));
    const double up = std::fabs(static_cast<double>(before.up.f32()[i]));
    bounds.push_back(16 * kUlp * std::fabs(static_cast<double>(after.y.f32()[i])) + gate * (1 + up) * 0x1p-125);
  }
  return bounds;
}

std::vector<double> allowed(const StoreLatentArgs&, const StoreLatentArgs& after, std::string_view) {
  const std::int64_t latent = after.weight.dim(0);
  return store_bounds(after.cache, after.places,
                      [latent](std::int64_t i, double value) { return i >= latent ? 0.0 : norm_bound(latent, value); });
}

// A normalised element is at most sqrt(width). Mean and variance are float sums: (width + 4) ulp of the largest distance to the mean each;
// after that a few roundings, of which the rotation adds up two elements.
std::vector<double> allowed(const StoreIndexKeyArgs& before, const StoreIndexKeyArgs& after, std::string_view) {
  const auto n = static_cast<double>(after.k.dim(1));
  const double weight = largest_of(before.weight);
  const double bias = largest_of(before.bias);
  const double bound = 2 * kUlp * (weight * (2 * n + 16) * std::sqrt(n) + 8 * bias) * (after.cache.dtype == DType::bf16 ? 1 + 0x1p-8 : 1);
  return store_bounds(after.cache, after.places, [bound](std::int64_t, double) { return bound; });
}

std::vector<double> allowed(const RotateAndStoreArgs& before, const RotateAndStoreArgs& after, std::string_view output) {
  if (output == "latent") return allowed(before.store_latent(), after.store_latent(), output);
  if (output == "index_keys") return allowed(before.store_index_key(), after.store_index_key(), output);
  return {};  // what is rotated only agrees to the bit
}

std::vector<double> allowed(const AttendLatentArgs& before, const AttendLatentArgs&, std::string_view) {
  std::vector<double> bounds;
  const std::int64_t heads = before.q.dim(1);
  for (std::int64_t token = 0; token < before.q.dim(0); ++token) {
    std::vector<Floats> rows;
    for (const std::int64_t position : attended(before, token)) rows.push_back(cache_row(before.cache, before.places, token, position));
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* const q = before.q.f32() + (token * heads + head) * before.q.dim(2);
      bounds.insert(bounds.end(), static_cast<std::size_t>(before.y.dim(2)), admission::attend_head_bound(q, rows, rows, before.scale));
    }
  }
  return bounds;
}

std::vector<double> allowed(const AttendGroupedArgs& before, const AttendGroupedArgs&, std::string_view) {
  std::vector<double> bounds;
  const std::int64_t heads = before.q.dim(1);
  const std::int64_t width = before.q.dim(2);
  const auto part = [width](const Floats& row, std::int64_t head) {
    return Floats(row.begin() + head * width, row.begin() + (head + 1) * width);
  };
  for (std::int64_t token = 0; token < before.q.dim(0); ++token) {
    std::vector<Floats> keys, values;
    for (std::int64_t position = 0; position <= before.places.positions.i32()[token]; ++position) {
      keys.push_back(cache_row(before.keys, before.places, token, position));
      values.push_back(cache_row(before.values, before.places, token, position));
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t kv_head = head / (heads / before.kv_heads);
      std::vector<Floats> own_keys, own_values;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        own_keys.push_back(part(keys[i], kv_head));
        own_values.push_back(part(values[i], kv_head));
      }
      const float* const q = before.q.f32() + (token * heads + head) * width;
      bounds.insert(bounds.end(), static_cast<std::size_t>(width), admission::attend_head_bound(q, own_keys, own_values, before.scale));
    }
  }
  return bounds;
}

// A score is a sum over heads of a product with a dot product of `dim` terms: each term is rounded (dim + heads + 4) times at most.
IndexScores index_scores(const IndexSelectArgs& args, std::int64_t token) {
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t dim = args.q.dim(2);
  IndexScores result;
  for (std::int64_t position = 0; position <= args.places.positions.i32()[token]; ++position) {
    const Floats key = cache_row(args.keys, args.places, token, position);
    double score = 0, magnitude = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* const q = args.q.f32() + (token * heads + head) * dim;
      double dot = 0, sum = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        const double product = static_cast<double>(q[i]) * key[static_cast<std::size_t>(i)];
        dot += product;
        sum += std::fabs(product);
      }
      const double weight = static_cast<double>(args.weights.f32()[token * heads + head]) * args.scale;
      score += weight * std::fmax(dot, 0);
      magnitude += std::fabs(weight) * sum;
    }
    result.scores.push_back(score);
    result.allowed.push_back(2 * kUlp * static_cast<double>(dim + heads + 4) * magnitude);
  }
  return result;
}

}  // namespace reckoner::trace
