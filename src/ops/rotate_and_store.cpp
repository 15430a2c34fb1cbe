#include "ops/rotate_and_store.h"

namespace reckoner {

RopeHeadsArgs RotateAndStoreArgs::queries() const { return {.x = q, .first = first, .layout = layout, .cosine = cosine, .sine = sine}; }

StoreLatentArgs RotateAndStoreArgs::store_latent() const {
  return {.kv = kv,
          .weight = latent_weight,
          .epsilon = latent_epsilon,
          .layout = layout,
          .cosine = cosine,
          .sine = sine,
          .places = places,
          .cache = latent};
}

RopeHeadsArgs RotateAndStoreArgs::index_queries() const {
  return {.x = index_q, .first = 0, .layout = index_layout, .cosine = cosine, .sine = sine};
}

StoreIndexKeyArgs RotateAndStoreArgs::store_index_key() const {
  return {.k = k,
          .weight = k_weight,
          .bias = k_bias,
          .epsilon = k_epsilon,
          .layout = index_layout,
          .cosine = cosine,
          .sine = sine,
          .places = places,
          .cache = index_keys};
}

Status check(const RotateAndStoreArgs& args) {
  TRY(check(args.queries()));
  TRY(check(args.store_latent()));
  if (!args.has_indexer()) return {};
  TRY(check(args.index_queries()));
  return check(args.store_index_key());
}

Cost cost(const RotateAndStoreArgs& args) {
  Cost sum = cost(args.queries());
  sum += cost(args.store_latent());
  if (!args.has_indexer()) return sum;
  sum += cost(args.index_queries());
  sum += cost(args.store_index_key());
  return sum;
}

void reference(const RotateAndStoreArgs& args) {
  reference(args.queries());
  reference(args.store_latent());
  if (!args.has_indexer()) return;
  reference(args.index_queries());
  reference(args.store_index_key());
}

}  // namespace reckoner
