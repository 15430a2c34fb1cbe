// Judge: compares what a kernel left in its copies with what the reference wrote.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "diagnose/admission/copies.h"

namespace reckoner::admission {

struct Verdict {
  double worst = 0;
  std::string reason;  // empty: nothing is wrong

  bool good() const { return reason.empty(); }
};

using Allowed = std::function<std::vector<double>(std::string_view output)>;

// A visitor of the case's Args, whose outputs the reference has written.
class Judge {
 public:
  Judge(const Copies& copies, const Arena& arena, const std::vector<std::byte>& bytes, const Allowed& allowed, Verdict& verdict)
      : copies_(copies), arena_(arena), bytes_(bytes), allowed_(allowed), verdict_(verdict) {}

  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& expected);
  void inout(const char* name, const Tensor& expected) { out(name, expected); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces& places) { places_ = &places; }
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char* name, const CacheView& expected);

  // That inputs are as they were, and borders.
  void look_at_the_rest();

 private:
  void refuse(std::string reason);
  const Copies::Piece& piece_of(const std::byte* host) const;
  const std::byte* found(const Copies::Piece& piece) const { return bytes_.data() + arena_.find(piece.copy); }
  void compare_bits(const char* name, const Tensor& expected, const std::byte* found);
  void compare(const char* name, std::int64_t row, double found, double expected, double allowed);
  void compare_row(const char* name, std::int64_t token, const CacheView& expected, const CacheView& found,
                   const std::vector<double>& allowed);

  const Copies& copies_;
  const Arena& arena_;
  const std::vector<std::byte>& bytes_;
  const Allowed& allowed_;
  Verdict& verdict_;
  const TokenPlaces* places_ = nullptr;
};

}  // namespace reckoner::admission
