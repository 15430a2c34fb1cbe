// Result<T>: errors as values. Everything that comes from outside (files, flags, requests) is reported this way.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace reckoner {

// What went wrong, for a person: `what` names the file, field or tensor, what was expected and what was found;
// `remedy` says what to do about it.
struct Error {
  std::string what;
  std::string remedy = {};

  std::string message() const { return remedy.empty() ? what : what + "\n  what to do: " + remedy; }
};

// Either a value or an Error. Reading the value of a failed result is a bug (std::bad_variant_access).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const {}
  const Error& error() const& { return error_.value(); }
  Error&& error() && { return std::move(error_).value(); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Returns the error of `expression` to our caller, or evaluates to its value:  auto file = TRY(MappedFile::open(path));
// Not inside a larger expression that builds strings or containers: compilers do not destroy those when it returns early.
#define TRY(expression)                                      \
  __extension__({                                            \
    auto try_result_ = (expression);                         \
    if (!try_result_) return std::move(try_result_).error(); \
    std::move(try_result_).value();                          \
  })

}  // namespace reckoner
