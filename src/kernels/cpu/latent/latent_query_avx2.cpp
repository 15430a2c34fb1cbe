#include "kernels/cpu/linear/dot_formats_avx2.inc.h"
//
#include "kernels/cpu/latent/latent_query.inc.h"

namespace reckoner::avx2 {

constinit const QueryCore kQueryF32 = query_core<F32Query>();
constinit const QueryCore kQueryF16 = query_core<F16Query>();
constinit const QueryCore kQueryBf16 = query_core<Bf16Query>();
constinit const QueryCore kQueryNvfp4 = query_core<Nvfp4Query>();

}  // namespace reckoner::avx2
