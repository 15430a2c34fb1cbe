#include "kernels/cpu/linear/dot_formats_avx512.inc.h"
//
#include "kernels/cpu/linear/dot.inc.h"

namespace reckoner::avx512 {

constinit const DotCore kDotF32 = dot_core<F32Format>();
constinit const DotCore kDotF16 = dot_core<F16Format>();
constinit const DotCore kDotBf16 = dot_core<Bf16Format>();
constinit const DotCore kDotNvfp4 = dot_core<Nvfp4Format>();
constinit const DotCore kDotMxfp4 = dot_core<Mxfp4Format>();
constinit const DotCore kDotInt4 = dot_core<Int4Format>();
constinit const DotCore kDotFp8Block = dot_core<Fp8BlockFormat>();
constinit const DotCore kDotFp8Channel = dot_core<Fp8ChannelFormat>();
constinit const DotCore kDotMxfp8 = dot_core<Mxfp8Format>();

}  // namespace reckoner::avx512
