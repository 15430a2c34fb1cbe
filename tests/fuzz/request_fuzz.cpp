// Bytes as the body of a request to each text endpoint: nothing but requests and errors may come of them, and an error says something.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/api_error.h"
#include "server/requests/chat_request.h"
#include "server/requests/completion_request.h"
#include "server/requests/messages_request.h"
#include "server/requests/responses_request.h"

namespace {

using namespace reckoner;

template <class T>
void check(const Result<T>& request) {
  if (!request && error_json(to_api_error(request.error())).size() < 10) std::abort();
}

// What was accepted must be what a template takes.
void check_chat(const Result<ChatRequest>& request) {
  check(request);
  if (request && !parse_json(messages_json(request->messages), "messages")) std::abort();
  if (request && !request->tools_json.empty() && !parse_json(request->tools_json, "tools")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const RequestLimits limits{.vocab = 1000, .max_context = 4096};
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check_chat(read_chat_request(body, limits));
      break;
    case 1:
      check(read_completion_request(body, limits));
      break;
    case 2:
      check_chat(read_messages_request(body, limits));
      break;
    default:
      check(read_responses_request(body, limits));
  }
  return 0;
}
