// How much memory there is, and how much context fits into it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace reckoner {

// Bytes that this process can still take: what the system calls available, within the limit of its cgroup. 0: unknown.
std::int64_t free_memory_bytes();

struct ContextNeeds {
  std::int64_t longest = 0;          // max_position_embeddings
  std::int64_t bytes_per_token = 0;  // of cache
  std::int64_t weight_bytes = 0;
  std::int64_t free_bytes = 0;  // 0: unknown
};
struct ContextChoice {
  std::int64_t tokens = 0;
  std::string why;
};
// `asked` tokens, or, when 0, the model's longest context cut to what half of the memory left beside the weights holds, but no less
// than 4096. Errors: longer than the model was made for; more cache than there is memory.
Result<ContextChoice> choose_context(std::int64_t asked, const ContextNeeds& needs);

}  // namespace reckoner
