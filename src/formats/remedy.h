// with_remedy: no error about a file leaves a user without a next step.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace reckoner {

inline constexpr std::string_view kCorrectFile = "correct the file, or download it again";

// `result`; when it is an error without a remedy, with this one.
template <class T>
Result<T> with_remedy(Result<T> result, std::string_view remedy) {
  if (result || !result.error().remedy.empty()) return result;
  return Error{std::move(result).error().what, std::string(remedy)};
}

}  // namespace reckoner
