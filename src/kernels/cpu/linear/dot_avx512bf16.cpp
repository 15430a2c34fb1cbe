#include "kernels/cpu/linear/dot_formats_avx512bf16.inc.h"
//
#include "kernels/cpu/linear/dot.inc.h"

namespace reckoner::avx512bf16 {

constinit const DotCore kDotBf16 = dot_core<Bf16ByBf16>();
constinit const DotCore kDotNvfp4 = dot_core<Nvfp4ByBf16, Nvfp4Bf16Panel>();

}  // namespace reckoner::avx512bf16
