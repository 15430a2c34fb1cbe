#include "ops/linear_group.h"

#include "quant/format.h"

namespace reckoner {

int part_of(std::string_view output) { return output.size() < 2 ? 0 : output.back() - '0'; }

double linear_group_tolerance(const LinearGroupArgs& args, int part) {
  const std::int64_t in = args.x.dim(1);
  const double of_norm = args.norm.empty() ? 0 : (static_cast<double>(in) / 2 + 8) * 0x1p-23;
  return linear_tolerance(args.parts[static_cast<std::size_t>(part)].precision, in) + of_norm;
}

RmsNormArgs norm_of(const LinearGroupArgs& args, const Tensor& normed) {
  return {.x = args.x, .add = {}, .weight = args.norm, .epsilon = args.epsilon, .y = normed, .guard = {}};
}

LinearArgs linear_of(const LinearGroupArgs& args, int part, const Tensor& x) {
  const LinearPart& own = args.parts[static_cast<std::size_t>(part)];
  return {.x = x, .w = own.w, .y = own.y, .precision = own.precision};
}

Status check(const LinearGroupArgs& args) {
  TRY(expect_that(args.count >= 1 && args.count <= LinearGroupArgs::kMostParts, LinearGroupArgs::kName, "takes one to four weights"));
  for (int i = 0; i < args.count; ++i) TRY(check(linear_of(args, i, args.x)));
  return args.norm.shape.rank() == 0 ? Status{} : check(norm_of(args, args.x));
}

Cost cost(const LinearGroupArgs& args) {
  Cost all{.bytes = static_cast<double>(args.x.bytes() + args.norm.bytes())};
  for (int i = 0; i < args.count; ++i) {
    all += cost(linear_of(args, i, args.x));
    all.bytes -= static_cast<double>(args.x.bytes());  // once, not for each
  }
  return all;
}

void reference(const LinearGroupArgs& args) {
  Buffer memory(args.x.bytes());
  Tensor x = args.x;
  if (!args.norm.empty()) {
    x = memory.tensor(DType::f32, args.x.shape);
    reference(norm_of(args, x));
  }
  for (int i = 0; i < args.count; ++i) reference(linear_of(args, i, x));
}

}  // namespace reckoner
