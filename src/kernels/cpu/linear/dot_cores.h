// The list of dot cores, best first: linear, linear_experts and latent_value have a kernel for each. A new one is one line here.
#pragma once

#include "kernels/cpu/linear/core_list.h"
#include "kernels/cpu/linear/dot.h"
#include "kernels/cpu/linear/dot_supports.h"

namespace reckoner {

inline constexpr CoreEntry<DotCore> kDotCores[] = {
    {"bf16.avx512bf16", &avx512bf16::kDotBf16, dot_needs_avx512bf16<QuantFormat::bf16>},
    {"nvfp4.avx512bf16", &avx512bf16::kDotNvfp4, dot_needs_avx512bf16<QuantFormat::nvfp4>},
    {"mxfp4.avx512bf16", &avx512bf16::kDotMxfp4, dot_needs_avx512bf16<QuantFormat::mxfp4>},
    {"int4_g32.avx512bf16", &avx512bf16::kDotInt4, dot_needs_avx512bf16<QuantFormat::int4_g32>},
    {"fp8_block.avx512bf16", &avx512bf16::kDotFp8Block, dot_needs_avx512bf16<QuantFormat::fp8_block>},
    {"fp8_channel.avx512bf16", &avx512bf16::kDotFp8Channel, dot_needs_avx512bf16<QuantFormat::fp8_channel>},
    {"mxfp8.avx512bf16", &avx512bf16::kDotMxfp8, dot_needs_avx512bf16<QuantFormat::mxfp8>},

    {"f32.avx512", &avx512::kDotF32, dot_needs_avx512<QuantFormat::f32>},
    {"f16.avx512", &avx512::kDotF16, dot_needs_avx512<QuantFormat::f16>},
    {"bf16.avx512", &avx512::kDotBf16, dot_needs_avx512<QuantFormat::bf16>},
    {"nvfp4.avx512", &avx512::kDotNvfp4, dot_needs_avx512<QuantFormat::nvfp4>},
    {"mxfp4.avx512", &avx512::kDotMxfp4, dot_needs_avx512<QuantFormat::mxfp4>},
    {"int4_g32.avx512", &avx512::kDotInt4, dot_needs_avx512<QuantFormat::int4_g32>},
    {"fp8_block.avx512", &avx512::kDotFp8Block, dot_needs_avx512<QuantFormat::fp8_block>},
    {"fp8_channel.avx512", &avx512::kDotFp8Channel, dot_needs_avx512<QuantFormat::fp8_channel>},
    {"mxfp8.avx512", &avx512::kDotMxfp8, dot_needs_avx512<QuantFormat::mxfp8>},

    {"f32.avx2", &avx2::kDotF32, dot_needs_avx2<QuantFormat::f32>},
    {"f16.avx2", &avx2::kDotF16, dot_needs_avx2<QuantFormat::f16>},
    {"bf16.avx2", &avx2::kDotBf16, dot_needs_avx2<QuantFormat::bf16>},
    {"nvfp4.avx2", &avx2::kDotNvfp4, dot_needs_avx2<QuantFormat::nvfp4>},
    {"mxfp4.avx2", &avx2::kDotMxfp4, dot_needs_avx2<QuantFormat::mxfp4>},
    {"int4_g32.avx2", &avx2::kDotInt4, dot_needs_avx2<QuantFormat::int4_g32>},
    {"fp8_block.avx2", &avx2::kDotFp8Block, dot_needs_avx2<QuantFormat::fp8_block>},
    {"fp8_channel.avx2", &avx2::kDotFp8Channel, dot_needs_avx2<QuantFormat::fp8_channel>},
    {"mxfp8.avx2", &avx2::kDotMxfp8, dot_needs_avx2<QuantFormat::mxfp8>},
};

template <class Args, template <const auto& core> class Runner>
std::vector<Kernel<Args>> dot_kernels() {
  return kernels_of_cores<Args, Runner, kDotCores>();
}

}  // namespace reckoner
