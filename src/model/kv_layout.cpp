#include "model/kv_layout.h"

namespace reckoner {
namespace {

DType cache_dtype(Precision precision, KvCacheType type) {
  if (type == KvCacheType::fp8) return DType::f8_e4m3;
  return type == KvCacheType::automatic && precision == Precision::exact ? DType::f32 : DType::bf16;
}

// Of the rows' elements the first `quantised` become E4M3 in an FP8 cache.
CacheView append(KvLayout& layout, std::int64_t row_elements, std::int64_t quantised, DType dtype) {
  const CacheView view{.offset_bytes = layout.page_bytes, .row_elements = row_elements, .dtype = dtype, .quantised_elements = quantised};
  constexpr std::int64_t kAlignment = 64;
  layout.page_bytes += (kPageTokens * view.row_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  return view;
}

template <class Visit>
void for_each_view(KvLayout& layout, Visit&& visit) {
  for (std::vector<CacheView>* views : {&layout.latent, &layout.index_keys, &layout.keys, &layout.values}) {
    for (CacheView& view : *views) visit(view);
  }
}

}  // namespace

KvLayout kv_layout(const ModelConfig& config, Precision precision, KvCacheType type) {
  const DType dtype = cache_dtype(precision, type);
  KvLayout layout;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(config.num_hidden_layers); ++layer) {
    if (!config.is_mla()) {
      const std::int64_t width = config.num_key_value_heads * config.head_dim;
      layout.keys.push_back(append(layout, width, width, dtype));
      layout.values.push_back(append(layout, width, width, dtype));
      continue;
    }
    layout.latent.push_back(append(layout, config.kv_lora_rank + config.qk_rope_head_dim, config.kv_lora_rank, dtype));
    const bool indexer = config.is_sparse_attention() && config.indexer_kinds[layer] == IndexerKind::full;
    layout.index_keys.push_back(indexer ? append(layout, config.index_head_dim, config.index_head_dim, dtype)
                                        : CacheView{.row_elements = 0});
  }
  for_each_view(layout, [&](CacheView& view) { view.page_bytes = layout.page_bytes; });
  return layout;
}

void place_at(KvLayout& layout, std::byte* base) {
  for_each_view(layout, [&](CacheView& view) { view.base = base; });
}

std::string_view cache_name(Precision precision, KvCacheType type) {
  const DType dtype = cache_dtype(precision, type);
  return dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bf16" : "fp8";
}

}  // namespace reckoner
