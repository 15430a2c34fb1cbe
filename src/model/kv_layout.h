// KvLayout: what a page of the cache holds. The engine hands out pages without knowing.
#pragma once

#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "ops/op.h"
#include "ops/pages.h"

namespace reckoner {

// What the cache is kept in. automatic: float where the precision is exact, BF16 where it is fast. fp8: E4M3 with a scale for each 128
// elements of a row; the rotated part of a latent row stays BF16.
enum class KvCacheType : std::uint8_t { automatic, bf16, fp8 };

struct KvLayout {
  std::int64_t page_bytes = 0;        // kPageTokens tokens of all layers
  std::vector<CacheView> latent;      // MLA, a layer: [latent + rope]
  std::vector<CacheView> index_keys;  // MLA, a layer: [index_dim]; row_elements 0 where the layer owns no indexer
  std::vector<CacheView> keys;        // grouped-query attention, a layer: [kv_heads * head_dim]
  std::vector<CacheView> values;      // the same

  std::int64_t bytes_per_token() const { return page_bytes / kPageTokens; }
};

// `base` (of the pool) is set by whoever allocates the pool, with place_at().
KvLayout kv_layout(const ModelConfig& config, Precision precision, KvCacheType type);
void place_at(KvLayout& layout, std::byte* base);

// "float32", "bf16" or "fp8": what the rows of a cache of this precision and type are.
std::string_view cache_name(Precision precision, KvCacheType type);

}  // namespace reckoner
