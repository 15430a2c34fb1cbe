#include "kernels/cpu/linear/dot_formats_avx512bf16.inc.h"
//
#include "kernels/cpu/linear/dot.inc.h"

namespace reckoner::avx512bf16 {

constinit const DotCore kDotBf16 = dot_core<Bf16ByBf16>();
constinit const DotCore kDotNvfp4 = dot_core<Nvfp4ByBf16, Nvfp4Panel>();
constinit const DotCore kDotMxfp4 = dot_core<Mxfp4ByBf16, Mxfp4Panel>();
constinit const DotCore kDotInt4 = dot_core<Int4ByBf16>();
constinit const DotCore kDotFp8Block = dot_core<Fp8BlockByBf16>();
constinit const DotCore kDotFp8Channel = dot_core<Fp8ChannelByBf16>();
constinit const DotCore kDotMxfp8 = dot_core<Mxfp8ByBf16>();

}  // namespace reckoner::avx512bf16
