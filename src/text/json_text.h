// JSON as text: escaping it, and checking it while it arrives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace reckoner {

// Appends what stands for `text` between a JSON string's quotes.
void append_json_escaped(std::string& out, std::string_view text);
// `text` as a JSON string.
std::string json_quoted(std::string_view text);

// Whether `text` is one JSON value.
bool is_json(std::string_view text);

// Takes a JSON object's text byte by byte and says at once when there is no way to go on.
class JsonPrefix {
 public:
  JsonPrefix();
  JsonPrefix(JsonPrefix&&) noexcept;
  JsonPrefix& operator=(JsonPrefix&&) noexcept;
  ~JsonPrefix();

  // False: with this byte the text is not the beginning of a JSON object. Nothing may be pushed afterwards.
  bool push(char byte);
  bool complete() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace reckoner
