#include "kernels/cpu/linear/dot_formats_avx512.inc.h"
//
#include "kernels/cpu/latent/latent_query.inc.h"

namespace reckoner::avx512 {

constinit const QueryCore kQueryF32 = query_core<F32Query>();
constinit const QueryCore kQueryF16 = query_core<F16Query>();
constinit const QueryCore kQueryBf16 = query_core<Bf16Query>();
constinit const QueryCore kQueryNvfp4 = query_core<Nvfp4Query>();
constinit const QueryCore kQueryMxfp4 = query_core<Mxfp4Query>();
constinit const QueryCore kQueryInt4 = query_core<Int4Query>();
constinit const QueryCore kQueryFp8Block = query_core<Fp8BlockQuery>();
constinit const QueryCore kQueryFp8Channel = query_core<Fp8ChannelQuery>();
constinit const QueryCore kQueryMxfp8 = query_core<Mxfp8Query>();

}  // namespace reckoner::avx512
