// The drivers of the row ops that have vector functions: rows are handed out to threads in groups that are worth a thread's while.
#include "kernels/cpu/rows/rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/rows/row_functions.h"
#include "kernels/cpu/supports.h"

namespace reckoner {
namespace {

// Floats that one item of work should touch at least.
constexpr std::int64_t kItemFloats = 8192;

// body(row, thread) for every row.
template <class Body>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kItemFloats / std::max<std::int64_t>(1, width));
  pool.parallel_for((rows + grain - 1) / grain, [&](std::int64_t item, int thread) {
    for (std::int64_t row = item * grain; row < std::min(rows, (item + 1) * grain); ++row) body(row, thread);
  });
}

void run(const RmsNormArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.x.dim(1);
  const bool adds = !args.add.empty();
  const bool guarded = !args.guard.first_bad.empty();
  const bool measured = !args.guard.rms.empty();
  for_rows(lane.pool, args.x.dim(0), width, [&](std::int64_t token, int) {
    float* x = args.x.f32() + token * width;
    const float squares = isa.add_and_square(x, adds ? args.add.f32() + token * width : nullptr, width);
    if (guarded && !std::isfinite(squares)) {
      std::int32_t& first_bad = args.guard.first_bad.i32()[token];
      if (first_bad == Guard::kClean) first_bad = args.guard.place;
    }
    const float mean = squares / static_cast<float>(width);
    if (measured) args.guard.rms.f32()[token] = std::sqrt(mean);
    const float inverse = 1.0f / std::sqrt(mean + args.epsilon);
    isa.scale(x, inverse, args.weight.f32(), width, args.y.f32() + token * width);
  });
}

// The rotation of a token; cosine and sine are [tokens, pairs].
Rotation rotation_of(const Tensor& cosine, const Tensor& sine, std::int64_t token, RopeLayout layout) {
  const std::int64_t pairs = cosine.dim(1);
  return {.cosine = cosine.f32() + token * pairs,
          .sine = sine.f32() + token * pairs,
          .pairs = pairs,
          .interleaved = layout == RopeLayout::interleaved};
}

void run(const RopeHeadsArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t heads = args.x.dim(1);
  const std::int64_t head_dim = args.x.dim(2);
  for_rows(lane.pool, args.x.dim(0), heads * 2 * args.cosine.dim(1), [&](std::int64_t token, int) {
    const Rotation rotation = rotation_of(args.cosine, args.sine, token, args.layout);
    for (std::int64_t head = 0; head < heads; ++head) {
      isa.rotate(args.x.f32() + (token * heads + head) * head_dim + args.first, rotation);
    }
  });
}

// Writes row[width] to the cache.
void write(const CacheView& cache, const TokenPlaces& places, std::int64_t token, const float* row, const RowFunctions& isa) {
  std::byte* at = cache.row(places.pages[static_cast<std::size_t>(token)], places.positions.i32()[token]);
  if (cache.dtype == DType::f32) {
    std::copy_n(row, cache.row_elements, reinterpret_cast<float*>(at));
    return;
  }
  const std::int64_t quantised = cache.quantised();
  auto* scales = reinterpret_cast<float*>(at + cache.scales_offset_bytes());
  for (std::int64_t first = 0; first < quantised; first += kCacheBlock) {
    scales[first / kCacheBlock] =
        isa.quantise(row + first, std::min(kCacheBlock, quantised - first), reinterpret_cast<std::uint8_t*>(at) + first);
  }
  isa.round_to_bf16(row + quantised, cache.row_elements - quantised, reinterpret_cast<std::uint16_t*>(at + cache.plain_offset_bytes()));
}

// A row of floats for each thread, so that rows of two threads do not share a cache line.
std::int64_t row_floats(std::int64_t width) { return (width + 15) / 16 * 16; }

float* thread_row(const Lane& lane, int thread, std::int64_t width) {
  return reinterpret_cast<float*>(lane.workspace) + thread * row_floats(width);
}

void run(const StoreLatentArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.kv.dim(1);
  const std::int64_t latent = args.weight.dim(0);
  for_rows(lane.pool, args.kv.dim(0), width, [&](std::int64_t token, int thread) {
    float* row = thread_row(lane, thread, width);
    std::copy_n(args.kv.f32() + token * width, width, row);
    const float squares = isa.add_and_square(row, nullptr, latent);
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(latent) + args.epsilon);
    isa.scale(row, inverse, args.weight.f32(), latent, row);
    isa.rotate(row + latent, rotation_of(args.cosine, args.sine, token, args.layout));
    write(args.cache, args.places, token, row, isa);
  });
}

void run(const StoreIndexKeyArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.k.dim(1);
  for_rows(lane.pool, args.k.dim(0), width, [&](std::int64_t token, int thread) {
    float* row = thread_row(lane, thread, width);
    isa.layer_norm(args.k.f32() + token * width, args.weight.f32(), args.bias.f32(), args.epsilon, width, row);
    isa.rotate(row, rotation_of(args.cosine, args.sine, token, args.layout));
    write(args.cache, args.places, token, row, isa);
  });
}

void run(const StoreRowsArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.x.dim(1);
  for_rows(lane.pool, args.x.dim(0), width,
           [&](std::int64_t token, int) { write(args.cache, args.places, token, args.x.f32() + token * width, isa); });
}

void run(const AddBiasArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.x.dim(1);
  for_rows(lane.pool, args.x.dim(0), width, [&](std::int64_t row, int) { isa.add(args.x.f32() + row * width, args.bias.f32(), width); });
}

void run(const SiluMulArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t elements = args.y.shape.elements();
  lane.pool.parallel_for((elements + kItemFloats - 1) / kItemFloats, [&](std::int64_t item, int) {
    const std::int64_t first = item * kItemFloats;
    isa.silu_mul(args.gate.f32() + first, args.up.f32() + first, std::min(kItemFloats, elements - first), args.y.f32() + first);
  });
}

void run(const CombineArgs& args, Lane& lane, const RowFunctions& isa) {
  const std::int64_t width = args.rows.dim(1);
  const std::int64_t top_k = args.weights.dim(1);
  // Columns of an item: one token alone reads top_k rows, enough for several threads.
  constexpr std::int64_t kColumns = 2048;
  const std::int64_t parts = (width + kColumns - 1) / kColumns;
  lane.pool.parallel_for(args.weights.dim(0) * parts, [&](std::int64_t item, int) {
    const std::int64_t token = item / parts;
    const std::int64_t first = item % parts * kColumns;
    isa.combine(args.rows.f32() + first, width, args.slot_of.i32() + token * top_k, args.weights.f32() + token * top_k, top_k,
                args.shared.empty() ? nullptr : args.shared.f32() + token * width + first, std::min(kColumns, width - first),
                args.y.f32() + token * width + first);
  });
}

template <class Args>
std::int64_t workspace_bytes(const Args& args, int threads) {
  std::int64_t width = 0;
  if constexpr (std::is_same_v<Args, StoreLatentArgs>) width = args.kv.dim(1);
  if constexpr (std::is_same_v<Args, StoreIndexKeyArgs>) width = args.k.dim(1);
  return threads * row_floats(width) * static_cast<std::int64_t>(sizeof(float));
}

// The two kernels of an op, best first.
template <class Args>
std::vector<Kernel<Args>> kernels(std::string_view avx512_name, std::string_view avx2_name) {
  return {{.name = avx512_name,
           .supports = needs_avx512,
           .workspace_bytes = workspace_bytes<Args>,
           .run = [](const Args& args, Lane& lane) { run(args, lane, avx512::row_functions()); }},
          {.name = avx2_name, .supports = needs_avx2, .workspace_bytes = workspace_bytes<Args>, .run = [](const Args& args, Lane& lane) {
             run(args, lane, avx2::row_functions());
           }}};
}

}  // namespace

std::vector<Kernel<RmsNormArgs>> rms_norm_kernels() { return kernels<RmsNormArgs>("rms_norm.avx512", "rms_norm.avx2"); }
std::vector<Kernel<RopeHeadsArgs>> rope_heads_kernels() { return kernels<RopeHeadsArgs>("rope_heads.avx512", "rope_heads.avx2"); }
std::vector<Kernel<StoreLatentArgs>> store_latent_kernels() { return kernels<StoreLatentArgs>("store_latent.avx512", "store_latent.avx2"); }
std::vector<Kernel<StoreIndexKeyArgs>> store_index_key_kernels() {
  return kernels<StoreIndexKeyArgs>("store_index_key.avx512", "store_index_key.avx2");
}
std::vector<Kernel<StoreRowsArgs>> store_rows_kernels() { return kernels<StoreRowsArgs>("store_rows.avx512", "store_rows.avx2"); }
std::vector<Kernel<AddBiasArgs>> add_bias_kernels() { return kernels<AddBiasArgs>("add_bias.avx512", "add_bias.avx2"); }
std::vector<Kernel<SiluMulArgs>> silu_mul_kernels() { return kernels<SiluMulArgs>("silu_mul.avx512", "silu_mul.avx2"); }
std::vector<Kernel<CombineArgs>> combine_kernels() { return kernels<CombineArgs>("combine.avx512", "combine.avx2"); }

}  // namespace reckoner
