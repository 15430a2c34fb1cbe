#include "text/bridge_calls.h"

#if defined(__SANITIZE_THREAD__)
#define RECKONER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RECKONER_THREAD_SANITIZER 1
#endif
#endif
#ifdef RECKONER_THREAD_SANITIZER
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();
// What Rust does at the end of a thread, out of reach of InBridge: the thread_local crate returns the thread's number to a
// vector that a mutex guards.
extern "C" const char* __tsan_default_suppressions() { return "race:raw_vec\n"; }
#endif

namespace reckoner {
namespace {

const char* remedy(ReckonerTextCode code) {
  switch (code) {
    case RECKONER_TEXT_OK:
      return "";
    case RECKONER_TEXT_ARGUMENT:
      return "correct the request";
    case RECKONER_TEXT_TOKENIZER_FILE:
      return "copy the model's tokenizer files again from where it was published, and check that the download is complete";
    case RECKONER_TEXT_CONFIG_FILE:
      return "copy the named file again from where the model was published, and check that the download is complete";
    case RECKONER_TEXT_TEMPLATE:
      return "see the named line of the template: it either refuses this conversation, or needs a fix (a chat_template.jinja in the "
             "model folder takes precedence over tokenizer_config.json)";
    case RECKONER_TEXT_INTERNAL:
      return "this is a bug: please report it with this text";
  }
  return "";
}

}  // namespace

InBridge::InBridge() {
#ifdef RECKONER_THREAD_SANITIZER
  __tsan_ignore_thread_begin();
#endif
}
InBridge::~InBridge() {
#ifdef RECKONER_THREAD_SANITIZER
  __tsan_ignore_thread_end();
#endif
}

ReckonerTextSlice bridge_slice(std::string_view text) { return {text.data(), text.size()}; }

std::string take_bytes(ReckonerTextBytes bytes) {
  std::string copy = bytes.size_bytes == 0 ? std::string() : std::string(bytes.data, bytes.size_bytes);
  reckoner_text_free_bytes(bytes);
  return copy;
}

Error bridge_error(ReckonerTextCode code, ReckonerTextBytes error) { return {.what = take_bytes(error), .remedy = remedy(code)}; }

}  // namespace reckoner
