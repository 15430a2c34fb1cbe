// TokenConstraint: which tokens may come next in an output, as a grammar says, for instance. The engine knows no text.
#pragma once

#include <cstdint>
#include <span>

namespace reckoner {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit i % 32 of word i / 32 if token i may come next, and clears it if it may not. Called once a token, on a thread of the
  // engine's while the model runs; never while another function of the same object runs.
  virtual void compute_mask(std::span<std::uint32_t> bits) = 0;
  // `token` was chosen. False: it may not follow, which ends the request with an error. Not called for a token that ends the output.
  virtual bool accept(std::int32_t token) = 0;
  // Nothing can follow: the output ends here.
  virtual bool finished() = 0;
};

// Words of a mask over `vocab` tokens.
constexpr std::int64_t mask_words(std::int64_t vocab) { return (vocab + 31) / 32; }

}  // namespace reckoner
