// What a kernel takes for an index must lie within what it points into. Ops trust their caller; a file is none.
#include <fmt/format.h>

#include <algorithm>

#include "diagnose/trace/bundle.h"

namespace reckoner::trace {
namespace {

Status all_within(std::string_view what, const Tensor& values, std::int64_t low, std::int64_t end) {
  if (values.empty()) return {};
  if (values.dtype != DType::i32) return Error{fmt::format("{}: expected I32", what)};
  for (std::int64_t i = 0; i < values.shape.elements(); ++i) {
    if (values.i32()[i] < low || values.i32()[i] >= end)
      return Error{fmt::format("{}: expected numbers from {} to {}, found {}", what, low, end - 1, values.i32()[i])};
  }
  return {};
}

// Positions below max_context: kernels take workspace for so many.
Status check_context(const TokenPlaces& places, std::int64_t max_context) {
  return all_within("places.positions", places.positions, 0, max_context);
}

template <class Args>
Status check_more(const Args&) {
  return {};
}

Status check_more(const EmbedArgs& args) { return all_within("tokens", args.tokens, 0, args.table.rows); }
Status check_more(const GatherRowsArgs& args) {
  TRY(expect_that(args.rows.dtype == DType::i32, GatherRowsArgs::kName, "rows must be I32"));
  return all_within("rows", args.rows, 0, args.x.dim(0));
}
Status check_more(const RopeAnglesArgs& args) { return all_within("positions", args.positions, 0, std::int64_t{1} << 30); }

// `tokens`: how many there are.
Status check_slots(std::string_view op, const ExpertSlots& slots, std::int64_t tokens) {
  const std::int64_t count = slots.tokens.shape.elements(), experts = slots.begin.dim(0) - 1;
  TRY(all_within("slots.begin", slots.begin, 0, count + 1));
  const std::int32_t* const begin = slots.begin.i32();
  const bool sorted = std::is_sorted(begin, begin + experts + 1);
  TRY(expect_that(sorted && begin[0] == 0 && begin[experts] == count, op, "slots.begin must lead from 0 to the slots"));
  return all_within("slots.tokens", slots.tokens, 0, tokens);
}

Status check_more(const LinearExpertsArgs& args) {
  return check_slots(LinearExpertsArgs::kName, args.slots,
                     args.rows == LinearExpertsArgs::Rows::by_token ? args.x.dim(0) : std::int64_t{1} << 30);
}
Status check_more(const GatedExpertsArgs& args) { return check_slots(GatedExpertsArgs::kName, args.slots, args.x.dim(0)); }
Status check_more(const ExpertsCombineArgs& args) {
  TRY(check_slots(ExpertsCombineArgs::kName, args.slots, args.y.dim(0)));
  return all_within("slot_of", args.slot_of, 0, args.x.dim(0));
}

Status check_more(const CombineArgs& args) { return all_within("slot_of", args.slot_of, 0, args.rows.dim(0)); }

Status check_more(const RouteArgs& args) {
  return expect_that(args.groups >= 1 && args.top_groups >= 1 && args.weights.dim(1) >= 1, RouteArgs::kName, "needs groups and a top_k");
}

Status check_more(const AttendGroupedArgs& args) {
  TRY(expect_that(args.kv_heads >= 1 && args.q.dim(1) % args.kv_heads == 0, AttendGroupedArgs::kName, "kv_heads must divide the heads"));
  return check_context(args.places, args.max_context);
}

Status check_more(const IndexSelectArgs& args) {
  TRY(expect_that(args.selection.top_k() >= 1, IndexSelectArgs::kName, "top_k must be at least 1"));
  return check_context(args.places, args.max_context);
}

Status check_more(const AttendLatentArgs& args) {
  TRY(check_context(args.places, args.max_context));
  if (args.selection.counts.empty()) return {};
  TRY(expect_that(!args.selection.positions.empty(), AttendLatentArgs::kName, "a selection needs positions"));
  const std::int64_t top_k = args.selection.top_k();
  TRY(all_within("selection.counts", args.selection.counts, 0, top_k + 1));
  for (std::int64_t token = 0; token < args.q.dim(0); ++token) {
    const std::int32_t* const first = args.selection.positions.i32() + token * top_k;
    const std::int32_t count = args.selection.counts.i32()[token];
    const bool ascending = std::is_sorted(first, first + count);
    const bool inside = count == 0 || (first[0] >= 0 && first[count - 1] <= args.places.positions.i32()[token]);
    TRY(expect_that(ascending && inside, AttendLatentArgs::kName, "a selection must hold ascending positions up to the token's own"));
  }
  return {};
}

// An op's check() asks for ranks before it looks at dimensions, and not whether there is anything.
class NeedsMemory {
 public:
  Status status;
  void in(const char* name, const Tensor& tensor) { need(name, tensor); }
  void out(const char* name, const Tensor& tensor) { need(name, tensor); }
  void inout(const char* name, const Tensor& tensor) { need(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}

 private:
  // Those that an op may do without.
  static bool optional(std::string_view name) {
    return name == "add" || name == "norm" || name == "shared" || name == "guard.first_bad" || name == "guard.rms" ||
           name.starts_with("selection.");
  }
  void need(const char* name, const Tensor& tensor) {
    if (status.ok() && tensor.empty() && !optional(name)) status = Error{fmt::format("argument {}: missing", name)};
  }
};

}  // namespace

Status check_indices(const AnyCaptured& call) {
  return std::visit(
      [](const auto& captured) -> Status {
        NeedsMemory needs;
        visit(captured.args, needs);
        TRY(std::move(needs.status));
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(captured.args)>, IndexSelectArgs>) {
          TRY(expect_that(!captured.args.selection.counts.empty() && !captured.args.selection.positions.empty(), IndexSelectArgs::kName,
                          "a selection to write is needed"));
        }
        TRY(check(captured.args));
        return check_more(captured.args);
      },
      call);
}

}  // namespace reckoner::trace
