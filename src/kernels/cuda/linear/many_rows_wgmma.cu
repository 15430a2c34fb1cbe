// linear and linear_experts for many tokens, in `fast`, on devices of compute capability 9.0: which blocks, and how many.
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/many_rows_wgmma.cuh"
#include "kernels/cuda/linear/rounded.cuh"

namespace reckoner::cuda {
namespace {

// What a multiprocessor of 9.0 has for its blocks, each of which takes 1 KiB more than it asks for.
constexpr std::int64_t kSharedBytes = 227 << 10, kBlockShared = 1 << 10;

// Many tokens: the weight is read and decoded as seldom as registers allow. Few: as much of it as fits is under way.
template <QuantFormat kFormat>
struct Shapes {  // of BF16
  using Many = ProductShape<3, 96, 192, 5, 3, 1>;
  using Few = ProductShape<3, 96, 64, 10, 4, 1>;
};
template <>
struct Shapes<QuantFormat::nvfp4> {
  using Many = ProductShape<3, 96, 192, 6, 4, 1>;
  using Few = ProductShape<3, 96, 64, 12, 8, 1>;
};
template <>
struct Shapes<QuantFormat::fp8_channel> {
  using Many = ProductShape<3, 96, 128, 6, 4, 1>;
  using Few = ProductShape<3, 96, 64, 10, 4, 1>;
};
template <>
struct Shapes<QuantFormat::fp8_block> {
  using Many = ProductShape<2, 96, 128, 6, 4, 1>;
  using Few = ProductShape<2, 96, 64, 8, 6, 1>;
};

template <QuantFormat kFormat, class Shape>
constexpr bool fits() {
  return Shape::kBlocks * (product_shared_bytes<kFormat, Shape>() + kBlockShared) <= kSharedBytes + kBlockShared;
}

// The kernel of a shape with the numbers of columns that it can multiply with.
template <QuantFormat kFormat, class Shape>
constexpr auto kernel_of() {
  if constexpr (Shape::kTokens == 192) {
    return products_kernel<kFormat, Shape, 32, 64, 96, 128, 160, 192>;
  } else if constexpr (Shape::kTokens == 128) {
    return products_kernel<kFormat, Shape, 32, 64, 128>;
  } else {
    return products_kernel<kFormat, Shape, 16, 32, 64>;
  }
}

struct Division {
  int tile = 0, splits = 1;
};

// How the blocks that there are at a time are kept busy: the tokens of a tile, and how many blocks share its columns. `at_a_time` blocks
// run at a time, and what one does is counted in pieces of columns times tokens.
template <class Shape>
Division divide(std::int64_t row_tiles, std::int64_t pieces, std::int64_t tokens, std::int64_t at_a_time) {
  constexpr std::int64_t kBeginAndEnd = 6;  // pieces that take as long
  Division best;
  std::int64_t least = 0;
  for (int tile = Shape::kTokens; tile >= std::min(Shape::kTokens, 128); tile -= 32) {
    for (int splits = 1; splits <= kMostSplits; splits *= 2) {
      if (splits > 1 && pieces / splits < 8) break;
      const std::int64_t blocks = row_tiles * blocks_for(tokens, tile) * splits;
      // A large cluster leaves multiprocessors idle, where too few of a group are left.
      const std::int64_t places = splits > 2 ? at_a_time * 7 / 8 : at_a_time;
      const std::int64_t rounds = (blocks + places - 1) / places;
      const std::int64_t cost =
          rounds * ((pieces + splits - 1) / splits + kBeginAndEnd + (splits > 1 ? splits : 0)) * std::min<std::int64_t>(tile, tokens);
      if (best.tile == 0 || cost < least) best = {.tile = tile, .splits = splits}, least = cost;
    }
  }
  return best;
}

template <QuantFormat kFormat, class Shape>
void launch_products(const DeviceExperts& experts, const ProductWork& work, dim3 grid, cudaStream_t stream) {
  static_assert(fits<kFormat, Shape>());
  constexpr auto kKernel = kernel_of<kFormat, Shape>();
  constexpr std::int64_t kBytes = product_shared_bytes<kFormat, Shape>();
  allow_shared(kKernel, kBytes);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = 1, attributes[1].val.clusterDim.y = 1, attributes[1].val.clusterDim.z = grid.z;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = Shape::kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = grid.z > 1 ? 2 : 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kKernel, experts, work));
}

// Weights of one format and as many columns; in `fast`, without a norm.
template <QuantFormat kFormat, class Shape>
void run_parts(const LinearGroupArgs& args, Lane& lane) {
  auto* rounded = reinterpret_cast<std::uint16_t*>(lane.workspace);
  const std::int64_t tokens = args.x.dim(0), cols = args.x.dim(1), at_once = part_tokens(cols);
  ProductWork work{.x = rounded, .y = nullptr, .begin = nullptr, .tokens = nullptr, .count = 0, .tile = 0, .parts = {}};
  int row_tiles = 0;
  for (int i = 0; i < args.count; ++i) {
    const LinearPart& part = args.parts[static_cast<std::size_t>(i)];
    row_tiles += static_cast<int>(blocks_for(part.w.rows, Shape::kRows));
    work.parts[i] = {.w = device_weight(part.w), .y = part.y.f32(), .end_tile = row_tiles};
  }
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    round_for_products<kFormat>(args.x.f32() + first * cols, rounded, some * cols, stream_of(lane));
    const Division division = divide<Shape>(row_tiles, cols / kPieceColumns, some, std::int64_t{multiprocessors()} * Shape::kBlocks);
    work.count = static_cast<int>(some);
    work.tile = division.tile;
    const dim3 grid(blocks_for(some, division.tile), static_cast<unsigned>(row_tiles), static_cast<unsigned>(division.splits));
    launch_products<kFormat, Shape>(DeviceExperts{}, work, grid, stream_of(lane));
    for (ProductPart& part : work.parts) part.y += some * part.w.rows;
  }
}

template <QuantFormat kFormat, class Shape>
void run_experts(const LinearExpertsArgs& args, Lane& lane) {
  auto* rounded = reinterpret_cast<std::uint16_t*>(lane.workspace);
  const DeviceExperts experts = device_experts(args.experts);
  round_for_products<kFormat>(args.x.f32(), rounded, args.x.shape.elements(), stream_of(lane));
  const ProductWork work{.x = rounded,
                         .y = args.y.f32(),
                         .begin = args.slots.begin.i32(),
                         .tokens = args.rows == LinearExpertsArgs::Rows::by_token ? args.slots.tokens.i32() : nullptr,
                         .count = 0,
                         .tile = Shape::kTokens,
                         .parts = {}};
  const dim3 grid(blocks_for(experts.first.rows, Shape::kRows),
                  static_cast<unsigned>(most_expert_tiles(args.y.dim(0), experts.count, Shape::kTokens)));
  launch_products<kFormat, Shape>(experts, work, grid, stream_of(lane));
}

// Of an expert, on average: beyond, most would not fit the tiles of Few.
constexpr std::int64_t kFewTokens = 64, kFewSlots = 40;

template <QuantFormat kFormat>
constexpr std::int64_t kMostShared = std::max(product_shared_bytes<kFormat, typename Shapes<kFormat>::Many>(),
                                              product_shared_bytes<kFormat, typename Shapes<kFormat>::Few>());

std::int64_t columns_multiple(QuantFormat format) { return format == QuantFormat::bf16 ? 64 : 128; }

}  // namespace

bool fits_wgmma(const Weight& w) { return has_chunks(w.format) && w.cols % columns_multiple(w.format) == 0; }

std::int64_t wgmma_shared_bytes(QuantFormat format) {
  std::int64_t bytes = 0;
  for_chunk_format(format, [&]<QuantFormat kFormat>() { bytes = kMostShared<kFormat>; });
  return bytes;
}

std::int64_t linear_wgmma_workspace(const LinearArgs& args) { return 2 * args.w.cols * std::min(args.x.dim(0), part_tokens(args.w.cols)); }
std::int64_t linear_wgmma_workspace(const LinearGroupArgs& args) { return linear_wgmma_workspace(linear_of(args, 0, args.x)); }
std::int64_t linear_wgmma_workspace(const LinearExpertsArgs& args) { return 2 * args.x.shape.elements(); }

void run_linear_wgmma(const LinearArgs& args, Lane& lane) {
  LinearGroupArgs only{.x = args.x, .norm = {}, .epsilon = 0, .count = 1, .parts = {}};
  only.parts[0] = {.w = args.w, .y = args.y, .precision = args.precision};
  run_linear_wgmma(only, lane);
}

void run_linear_wgmma(const LinearGroupArgs& args, Lane& lane) {
  for_chunk_format(args.parts[0].w.format, [&]<QuantFormat kFormat>() {
    if (args.x.dim(0) <= kFewTokens) return run_parts<kFormat, typename Shapes<kFormat>::Few>(args, lane);
    run_parts<kFormat, typename Shapes<kFormat>::Many>(args, lane);
  });
}

void run_linear_wgmma(const LinearExpertsArgs& args, Lane& lane) {
  for_chunk_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
    if (args.y.dim(0) <= kFewSlots * std::ssize(args.experts)) return run_experts<kFormat, typename Shapes<kFormat>::Few>(args, lane);
    run_experts<kFormat, typename Shapes<kFormat>::Many>(args, lane);
  });
}

}  // namespace reckoner::cuda
