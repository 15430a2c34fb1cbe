#include "cli/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "cli/text_format.h"

namespace reckoner {
namespace {

// The number after `key` in a file of lines "key value".
std::optional<std::int64_t> number_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::int64_t value = 0;
    if (words >> first >> value && first == key) return value;
  }
  return std::nullopt;
}

// What the cgroup's limit leaves (cgroup v2). Its page cache does not count: the system drops it when memory is wanted.
std::int64_t free_in_cgroup() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;
  if (!(file >> limit)) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(1, limit - number_in("/sys/fs/cgroup/memory.stat", "anon").value_or(0));
}

}  // namespace

std::int64_t free_memory_bytes() {
  const std::optional<std::int64_t> available_kib = number_in("/proc/meminfo", "MemAvailable:");
  if (!available_kib) return 0;
  return std::min(*available_kib * 1024, free_in_cgroup());
}

Result<ContextChoice> choose_context(std::int64_t asked, const ContextNeeds& needs) {
  const std::int64_t beside_weights = std::max<std::int64_t>(0, needs.free_bytes - needs.weight_bytes);
  if (asked > needs.longest) {
    return Error{fmt::format("--context {}: the model was made for at most {} tokens (max_position_embeddings)", asked, needs.longest),
                 "ask for fewer tokens"};
  }
  if (asked > 0) {
    const double bytes = static_cast<double>(asked) * static_cast<double>(needs.bytes_per_token);
    if (needs.free_bytes > 0 && bytes > static_cast<double>(beside_weights)) {
      return Error{fmt::format("--context {}: its cache takes {}, and beside the weights {} of memory are free", asked, bytes_text(bytes),
                               bytes_text(static_cast<double>(beside_weights))),
                   "ask for fewer tokens"};
    }
    return ContextChoice{asked, "--context"};
  }
  if (needs.free_bytes == 0) return ContextChoice{std::min<std::int64_t>(4096, needs.longest), "the free memory is unknown"};
  const std::int64_t fits = beside_weights / 2 / std::max<std::int64_t>(1, needs.bytes_per_token);
  if (fits >= needs.longest) return ContextChoice{needs.longest, "the model's longest"};
  return ContextChoice{std::clamp(fits, std::min<std::int64_t>(4096, needs.longest), needs.longest),
                       fmt::format("what half of the free memory holds; the model's longest is {}", needs.longest)};
}

}  // namespace reckoner
