#include "kernels/cpu/latent/latent_query.h"

#include <algorithm>

#include "kernels/cpu/latent/latent.h"
#include "kernels/cpu/linear/core_list.h"
#include "kernels/cpu/linear/dot_supports.h"
#include "quant/format.h"

namespace reckoner {
namespace {

std::int64_t panel_floats(const LatentQueryArgs& args) { return args.nope * kQueryCols; }

std::int64_t workspace_bytes(const LatentQueryArgs& args, int threads) {
  return threads * panel_floats(args) * static_cast<std::int64_t>(sizeof(float));
}

QueryTask task_of(const LatentQueryArgs& args, std::int64_t head) {
  const std::int64_t heads = args.q.dim(1);
  const FormatInfo& format = info(args.kv_b.format);
  const Weight w = row_range(args.kv_b, head * (args.kv_b.rows / heads), args.nope);
  return {.data = w.data,
          .scales = w.scales,
          .first_row = w.first_row,
          .row_bytes = format.row_bytes(w.cols),
          .scale_row_bytes = format.scale_row_bytes(w.cols),
          .scale = w.scale,
          .nope = args.nope,
          .first_col = 0,
          .cols = w.cols,
          .q = args.q.f32() + head * args.q.dim(2),
          .q_stride = heads * args.q.dim(2),
          .y = args.y.f32() + head * args.y.dim(2),
          .y_stride = heads * args.y.dim(2),
          .tokens = args.q.dim(0)};
}

// What follows the latent is already rotated: it passes through.
void copy_rope(const QueryTask& task, std::int64_t latent, std::int64_t rope) {
  for (std::int64_t token = 0; token < task.tokens; ++token) {
    std::copy_n(task.q + token * task.q_stride + task.nope, rope, task.y + token * task.y_stride + latent);
  }
}

void run(const QueryCore& core, const LatentQueryArgs& args, Lane& lane) {
  const std::int64_t latent = args.kv_b.cols;
  const bool few = args.q.dim(0) <= core.few_tokens;
  const std::int64_t part = few ? latent : kQueryCols;
  const std::int64_t parts = (latent + part - 1) / part;
  lane.pool.parallel_for(args.q.dim(1) * parts, [&](std::int64_t item, int thread) {
    QueryTask task = task_of(args, item / parts);
    task.first_col = item % parts * part;
    task.cols = std::min(part, latent - task.first_col);
    if (few) {
      core.few(task);
    } else {
      core.many(task, reinterpret_cast<float*>(lane.workspace) + thread * panel_floats(args));
    }
    if (task.first_col == 0) copy_rope(task, latent, args.q.dim(2) - args.nope);
  });
}

template <const auto& core>
struct Runner {
  static std::int64_t workspace_bytes(const LatentQueryArgs& args, int threads) { return reckoner::workspace_bytes(args, threads); }
  static void run(const LatentQueryArgs& args, Lane& lane) { reckoner::run(core, args, lane); }
};

constexpr CoreEntry<QueryCore> kQueryCores[] = {
    {"f32.avx512", &avx512::kQueryF32, dot_needs_avx512<QuantFormat::f32>},
    {"f16.avx512", &avx512::kQueryF16, dot_needs_avx512<QuantFormat::f16>},
    {"bf16.avx512", &avx512::kQueryBf16, dot_needs_avx512<QuantFormat::bf16>},
    {"nvfp4.avx512", &avx512::kQueryNvfp4, dot_needs_avx512<QuantFormat::nvfp4>},
    {"mxfp4.avx512", &avx512::kQueryMxfp4, dot_needs_avx512<QuantFormat::mxfp4>},
    {"int4_g32.avx512", &avx512::kQueryInt4, dot_needs_avx512<QuantFormat::int4_g32>},
    {"fp8_block.avx512", &avx512::kQueryFp8Block, dot_needs_avx512<QuantFormat::fp8_block>},
    {"fp8_channel.avx512", &avx512::kQueryFp8Channel, dot_needs_avx512<QuantFormat::fp8_channel>},
    {"mxfp8.avx512", &avx512::kQueryMxfp8, dot_needs_avx512<QuantFormat::mxfp8>},

    {"f32.avx2", &avx2::kQueryF32, dot_needs_avx2<QuantFormat::f32>},
    {"f16.avx2", &avx2::kQueryF16, dot_needs_avx2<QuantFormat::f16>},
    {"bf16.avx2", &avx2::kQueryBf16, dot_needs_avx2<QuantFormat::bf16>},
    {"nvfp4.avx2", &avx2::kQueryNvfp4, dot_needs_avx2<QuantFormat::nvfp4>},
    {"mxfp4.avx2", &avx2::kQueryMxfp4, dot_needs_avx2<QuantFormat::mxfp4>},
    {"int4_g32.avx2", &avx2::kQueryInt4, dot_needs_avx2<QuantFormat::int4_g32>},
    {"fp8_block.avx2", &avx2::kQueryFp8Block, dot_needs_avx2<QuantFormat::fp8_block>},
    {"fp8_channel.avx2", &avx2::kQueryFp8Channel, dot_needs_avx2<QuantFormat::fp8_channel>},
    {"mxfp8.avx2", &avx2::kQueryMxfp8, dot_needs_avx2<QuantFormat::mxfp8>},
};

}  // namespace

std::vector<Kernel<LatentQueryArgs>> latent_query_kernels() { return kernels_of_cores<LatentQueryArgs, Runner, kQueryCores>(); }

}  // namespace reckoner
