#include "model/kv_layout.h"

namespace reckoner {
namespace {

CacheView append(KvLayout& layout, std::int64_t row_elements, DType dtype) {
  const CacheView view{.offset_bytes = layout.page_bytes, .row_elements = row_elements, .dtype = dtype};
  constexpr std::int64_t kAlignment = 64;
  layout.page_bytes += (kPageTokens * view.row_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  return view;
}

}  // namespace

KvLayout kv_layout(const ModelConfig& config, Precision precision) {
  const DType dtype = precision == Precision::exact ? DType::f32 : DType::bf16;
  KvLayout layout;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(config.num_hidden_layers); ++layer) {
    layout.latent.push_back(append(layout, config.kv_lora_rank + config.qk_rope_head_dim, dtype));
    const bool indexer = config.is_sparse_attention() && config.indexer_kinds[layer] == IndexerKind::full;
    layout.index_keys.push_back(indexer ? append(layout, config.index_head_dim, dtype) : CacheView{.row_elements = 0});
  }
  for (std::vector<CacheView>* views : {&layout.latent, &layout.index_keys}) {
    for (CacheView& view : *views) view.page_bytes = layout.page_bytes;
  }
  return layout;
}

void place_at(KvLayout& layout, std::byte* base) {
  for (std::vector<CacheView>* views : {&layout.latent, &layout.index_keys}) {
    for (CacheView& view : *views) view.base = base;
  }
}

}  // namespace reckoner
