// Any bytes as a safetensors file: either an error, or tensors that lie within the bytes.
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The length in front would keep the fuzzer busy, so that half of the inputs get a right one: first byte even = as it is.
  if (size == 0) return 0;
  std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data) + 1, reinterpret_cast<const std::byte*>(data) + size);
  if (data[0] % 2 != 0) {
    // The header is all text up to the first zero byte.
    std::uint64_t length = 0;
    while (length < file.size() && file[length] != std::byte{0}) ++length;
    std::vector<std::byte> prefix(8);
    for (std::size_t byte = 0; byte < 8; ++byte) prefix[byte] = static_cast<std::byte>(length >> (8 * byte));
    file.insert(file.begin(), prefix.begin(), prefix.end());
  }
  const reckoner::Result<reckoner::SafetensorsContent> content = reckoner::parse_safetensors(file, "fuzz");
  if (!content) {
    CHECK(!content.error().what.empty());
    return 0;
  }
  for (const reckoner::TensorEntry& entry : content->tensors) {
    CHECK(entry.file_offset >= 8);
    CHECK(entry.file_offset + entry.tensor.bytes() <= static_cast<std::int64_t>(file.size()));
    // Every byte must be readable: the address sanitizer watches.
    static_cast<void>(std::accumulate(entry.tensor.data, entry.tensor.data + entry.tensor.bytes(), 0u,
                                      [](unsigned sum, std::byte byte) { return sum + std::to_integer<unsigned>(byte); }));
  }
  return 0;
}
