// The plain members of each op's Args, by name: what tensors, weights and caches (visit, ops/op.h) do not cover.
#pragma once

#include "ops/kernel.h"

namespace reckoner::trace {

// Calls v(name, member) for each number and enumerator; an op without any needs no line here.
template <class Args, class V>
void visit_scalars(Args&, V&&) {}

template <ArgsOf<LinearArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
}
template <ArgsOf<LinearExpertsArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
  v("rows", args.rows);
}
template <ArgsOf<GatedLinearArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
}
template <ArgsOf<GatedExpertsArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
}
template <ArgsOf<ExpertsCombineArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
}
template <ArgsOf<LinearGroupArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("epsilon", args.epsilon);
  v("count", args.count);
  v("precision", args.parts[0].precision);
  v("precision1", args.parts[1].precision);
  v("precision2", args.parts[2].precision);
  v("precision3", args.parts[3].precision);
}
template <ArgsOf<LatentQueryArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
  v("nope", args.nope);
}
template <ArgsOf<LatentValueArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("precision", args.precision);
  v("nope", args.nope);
}
template <ArgsOf<RmsNormArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("epsilon", args.epsilon);
  v("guard.place", args.guard.place);
}
template <ArgsOf<RopeHeadsArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("first", args.first);
  v("layout", args.layout);
}
template <ArgsOf<StoreLatentArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("epsilon", args.epsilon);
  v("layout", args.layout);
}
template <ArgsOf<StoreIndexKeyArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("epsilon", args.epsilon);
  v("layout", args.layout);
}
template <ArgsOf<RotateAndStoreArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("first", args.first);
  v("layout", args.layout);
  v("latent_epsilon", args.latent_epsilon);
  v("index_layout", args.index_layout);
  v("k_epsilon", args.k_epsilon);
}
template <ArgsOf<IndexSelectArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("scale", args.scale);
  v("max_context", args.max_context);
}
template <ArgsOf<AttendLatentArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("scale", args.scale);
  v("max_context", args.max_context);
}
template <ArgsOf<AttendGroupedArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("scale", args.scale);
  v("max_context", args.max_context);
  v("kv_heads", args.kv_heads);
}
template <ArgsOf<RouteArgs> A, class V>
void visit_scalars(A& args, V&& v) {
  v("groups", args.groups);
  v("top_groups", args.top_groups);
  v("normalise", args.normalise);
  v("scale", args.scale);
}

}  // namespace reckoner::trace
