#include "diagnose/trials/isolate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace reckoner::trials {
namespace {

using Factors = std::vector<int>;  // ascending

// A single cause is more likely than a given pair.
constexpr double kSingleWeight = 4;

class Search {
 public:
  Search(const Knowledge& knowledge, const Configuration& passes, const Configuration& fails)
      : knowledge_(knowledge), passes_(knowledge.canonical(passes)), fails_(knowledge.canonical(fails)) {}

  std::variant<Ask, FailingSet> run() {
    Factors rest = shrunk(differences(passes_, fails_));
    for (;;) {
      if (rest.size() <= 1) return found(rest);
      const std::vector<Factors> candidates = open_candidates(rest);
      const std::optional<Factors> half = halving(rest, candidates);
      if (!half) break;
      if (half->size() == rest.size()) break;
      const std::optional<bool> failed = fails(*half);
      if (!failed) return Ask{mixed(*half)};
      // A pass that did not refute a candidate would be asked for ever: there is none, since what passes refutes all that it contains.
      if (*failed) rest = shrunk(*half);
    }
    if (is_minimal_by_trials(rest)) return found(rest);
    const std::optional<Factors> minimal = explain({}, false, rest);
    if (!minimal) return Ask{mixed(*asked_)};
    return found(*minimal);
  }

 private:
  // `passes_` with the failing values of these factors.
  Configuration mixed(const Factors& factors) const {
    Configuration configuration = passes_;
    for (const int factor : factors) configuration[static_cast<std::size_t>(factor)] = fails_[static_cast<std::size_t>(factor)];
    return configuration;
  }
  Assignment assignment(const Factors& factors) const {
    Assignment part(passes_.size(), -1);
    for (const int factor : factors) part[static_cast<std::size_t>(factor)] = fails_[static_cast<std::size_t>(factor)];
    return part;
  }
  FailingSet found(const Factors& factors) const { return {.set = assignment(factors), .from = passes_, .fails = mixed(factors)}; }

  // What trials say; a flaky configuration is not one that always fails. What may not be started counts as passing.
  std::optional<bool> fails(const Factors& factors) const {
    const Configuration configuration = mixed(factors);
    const Stability status = knowledge_.status(configuration);
    if (status != Stability::unknown) return status == Stability::fails;
    if (knowledge_.is_excluded(configuration)) return false;
    return std::nullopt;
  }

  // The smallest subset that has already failed.
  Factors shrunk(const Factors& factors) const {
    Factors smallest = factors;
    for (const auto& [configuration, count] : knowledge_.counts()) {
      if (count.status() != Stability::fails) continue;
      const Factors used = differences(passes_, configuration);
      const bool inside = std::all_of(used.begin(), used.end(), [&](int factor) {
        const auto i = static_cast<std::size_t>(factor);
        return configuration[i] == fails_[i] && std::binary_search(factors.begin(), factors.end(), factor);
      });
      if (inside && !used.empty() && used.size() < smallest.size()) smallest = used;
    }
    return smallest;
  }

  // Sets of one or two that no passing configuration contains.
  std::vector<Factors> open_candidates(const Factors& rest) const {
    std::vector<Factors> candidates;
    const auto add = [&](const Factors& factors) {
      const Assignment part = assignment(factors);
      for (const auto& [configuration, count] : knowledge_.counts()) {
        if (count.passes > 0 && contains(configuration, part)) return;
      }
      if (fails(factors).value_or(true)) candidates.push_back(factors);
    };
    for (std::size_t i = 0; i < rest.size(); ++i) {
      add({rest[i]});
      for (std::size_t j = 0; j < i; ++j) add({rest[j], rest[i]});
    }
    return candidates;
  }

  // A subset that holds about half of the candidates' weight, and has not been started with a pass. Nothing: no candidates.
  std::optional<Factors> halving(const Factors& rest, const std::vector<Factors>& candidates) const {
    if (candidates.empty()) return std::nullopt;
    const auto weight = [](const Factors& candidate) { return candidate.size() == 1 ? kSingleWeight : 1.0; };
    double total = 0;
    for (const Factors& candidate : candidates) total += weight(candidate);
    std::optional<Factors> best;
    double best_distance = 0;
    const auto consider = [&](const Factors& subset) {
      double inside = 0;
      for (const Factors& candidate : candidates) {
        if (std::includes(subset.begin(), subset.end(), candidate.begin(), candidate.end())) inside += weight(candidate);
      }
      if (inside == 0 || fails(subset) == false) return;
      const double distance = std::abs(inside - total / 2) + 0.01 * static_cast<double>(subset.size());
      if (best && distance >= best_distance) return;
      best = subset;
      best_distance = distance;
    };
    each_subset(rest, consider);
    return best;
  }

  // All proper subsets, or many of them; with one candidate left, that one.
  static void each_subset(const Factors& rest, const std::function<void(const Factors&)>& take) {
    constexpr std::size_t kEnumerated = 11;
    constexpr int kDrawn = 3000;
    const auto chosen = [&](auto is_in) {
      Factors subset;
      for (std::size_t i = 0; i < rest.size(); ++i) {
        if (is_in(i)) subset.push_back(rest[i]);
      }
      if (!subset.empty() && subset.size() < rest.size()) take(subset);
    };
    if (rest.size() <= kEnumerated) {
      for (std::uint32_t bits = 1; bits < (1U << rest.size()); ++bits) chosen([&](std::size_t i) { return (bits >> i & 1) != 0; });
      return;
    }
    std::mt19937 random(7);
    for (int i = 0; i < kDrawn; ++i) chosen([&](std::size_t) { return random() % 2 == 0; });
    for (std::size_t i = 0; i < rest.size(); ++i) {
      for (std::size_t j = 0; j <= i; ++j) chosen([&](std::size_t k) { return k == i || k == j; });
    }
  }

  bool is_minimal_by_trials(const Factors& factors) const {
    for (const int left_out : factors) {
      Factors fewer = factors;
      std::erase(fewer, left_out);
      if (fewer.empty() || fails(fewer) != false) return false;
    }
    return true;
  }

  // QuickXplain (Junker 2004): a minimal failing subset of `open`, beside `kept`. Nothing: asked_ has to be started first.
  std::optional<Factors> explain(const Factors& kept, bool has_grown, const Factors& open) {
    if (has_grown && !kept.empty()) {
      const std::optional<bool> failed = fails(kept);
      if (!failed) asked_ = kept;
      if (!failed) return std::nullopt;
      if (*failed) return Factors{};
    }
    if (open.size() <= 1) return open;
    const auto middle = open.begin() + static_cast<std::ptrdiff_t>(open.size() / 2);
    const Factors first(open.begin(), middle);
    const Factors second(middle, open.end());
    const std::optional<Factors> of_second = explain(joined(kept, first), true, second);
    if (!of_second) return std::nullopt;
    const std::optional<Factors> of_first = explain(joined(kept, *of_second), !of_second->empty(), first);
    if (!of_first) return std::nullopt;
    return joined(*of_first, *of_second);
  }
  static Factors joined(const Factors& a, const Factors& b) {
    Factors both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }

  const Knowledge& knowledge_;
  Configuration passes_;
  Configuration fails_;
  std::optional<Factors> asked_;
};

}  // namespace

std::variant<Ask, FailingSet> isolate(const Knowledge& knowledge, const Configuration& passes, const Configuration& fails) {
  return Search(knowledge, passes, fails).run();
}

}  // namespace reckoner::trials
