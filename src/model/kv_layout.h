// KvLayout: what a page of the cache holds. The engine hands out pages without knowing.
#pragma once

#include <vector>

#include "formats/model_config.h"
#include "ops/op.h"
#include "ops/pages.h"

namespace reckoner {

struct KvLayout {
  std::int64_t page_bytes = 0;        // kPageTokens tokens of all layers
  std::vector<CacheView> latent;      // a layer: [latent + rope]
  std::vector<CacheView> index_keys;  // a layer: [index_dim]; row_elements 0 where the layer owns no indexer

  std::int64_t bytes_per_token() const { return page_bytes / kPageTokens; }
};

// Float rows in `exact`, BF16 rows in `fast`. `base` (of the pool) is set by whoever allocates the pool, with place_at().
KvLayout kv_layout(const ModelConfig& config, Precision precision);
void place_at(KvLayout& layout, std::byte* base);

}  // namespace reckoner
