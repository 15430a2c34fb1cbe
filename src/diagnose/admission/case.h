// Case: arguments of an op with their memory, and what a kernel's answer may be off by. Small, generated, the same on every machine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/kernel.h"

namespace reckoner::admission {

// Sizes of a model that kernels may be made for, or fail at. Cases take the widths as they are, and little of everything else.
struct Shapes {
  std::vector<std::int64_t> widths = {128};  // columns of its matrices
  std::int64_t hidden = 256;
  std::int64_t heads = 8;
  std::int64_t latent = 512;
  std::int64_t rope = 64;  // elements that are rotated
  std::int64_t nope = 128;
  std::int64_t value = 128;
  std::int64_t index_heads = 8;
  std::int64_t index_dim = 128;
  std::int64_t index_top_k = 64;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 128;
  std::int64_t experts = 8;
  std::int64_t top_k = 2;
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  DType cache = DType::f32;

  bool operator==(const Shapes&) const = default;
};

template <class Args>
struct Case {
  std::string shapes;  // for messages: "[3, 160] x [67, 160]^T"
  std::shared_ptr<const void> memory;
  Args args;
  // What each element of an output may be off by; asked when the reference has written them. Empty: by nothing. Of a cache, the elements
  // of each token's row.
  std::function<std::vector<double>(std::string_view output)> allowed = [](std::string_view) { return std::vector<double>(); };
};

// Made one at a time.
template <class Args>
using Cases = std::vector<std::function<Case<Args>()>>;

// The cases of each op. The pointer only says which.
Cases<LinearArgs> cases_of(const LinearArgs*, const Key& key, const Shapes& shapes);
Cases<LinearExpertsArgs> cases_of(const LinearExpertsArgs*, const Key& key, const Shapes& shapes);
Cases<LinearGroupArgs> cases_of(const LinearGroupArgs*, const Key& key, const Shapes& shapes);
Cases<LatentQueryArgs> cases_of(const LatentQueryArgs*, const Key& key, const Shapes& shapes);
Cases<LatentValueArgs> cases_of(const LatentValueArgs*, const Key& key, const Shapes& shapes);
Cases<EmbedArgs> cases_of(const EmbedArgs*, const Key& key, const Shapes& shapes);
Cases<RmsNormArgs> cases_of(const RmsNormArgs*, const Key& key, const Shapes& shapes);
Cases<RopeAnglesArgs> cases_of(const RopeAnglesArgs*, const Key& key, const Shapes& shapes);
Cases<RopeHeadsArgs> cases_of(const RopeHeadsArgs*, const Key& key, const Shapes& shapes);
Cases<StoreLatentArgs> cases_of(const StoreLatentArgs*, const Key& key, const Shapes& shapes);
Cases<StoreIndexKeyArgs> cases_of(const StoreIndexKeyArgs*, const Key& key, const Shapes& shapes);
Cases<StoreRowsArgs> cases_of(const StoreRowsArgs*, const Key& key, const Shapes& shapes);
Cases<RotateAndStoreArgs> cases_of(const RotateAndStoreArgs*, const Key& key, const Shapes& shapes);
Cases<IndexSelectArgs> cases_of(const IndexSelectArgs*, const Key& key, const Shapes& shapes);
Cases<AttendLatentArgs> cases_of(const AttendLatentArgs*, const Key& key, const Shapes& shapes);
Cases<AttendGroupedArgs> cases_of(const AttendGroupedArgs*, const Key& key, const Shapes& shapes);
Cases<SiluMulArgs> cases_of(const SiluMulArgs*, const Key& key, const Shapes& shapes);
Cases<AddBiasArgs> cases_of(const AddBiasArgs*, const Key& key, const Shapes& shapes);
Cases<RouteArgs> cases_of(const RouteArgs*, const Key& key, const Shapes& shapes);
Cases<CombineArgs> cases_of(const CombineArgs*, const Key& key, const Shapes& shapes);
Cases<GatherRowsArgs> cases_of(const GatherRowsArgs*, const Key& key, const Shapes& shapes);
Cases<GatedLinearArgs> cases_of(const GatedLinearArgs*, const Key& key, const Shapes& shapes);
Cases<GatedExpertsArgs> cases_of(const GatedExpertsArgs*, const Key& key, const Shapes& shapes);
Cases<ExpertsCombineArgs> cases_of(const ExpertsCombineArgs*, const Key& key, const Shapes& shapes);

}  // namespace reckoner::admission
