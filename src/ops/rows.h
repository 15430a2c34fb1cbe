// embed, gather_rows, silu_mul and add_bias: the ops that only move or map elements.
#pragma once

#include "ops/op.h"

namespace reckoner {

// y[t] = table[tokens[t]]
struct EmbedArgs {
  static constexpr std::string_view kName = "embed";
  Tensor tokens;  // [tokens] i32, each below table.rows
  Weight table;   // [vocab, width]
  Tensor y;       // [tokens, width] f32

  Key key() const { return {Precision::exact, table.format}; }
};

// y[i] = x[rows[i]]
struct GatherRowsArgs {
  static constexpr std::string_view kName = "gather_rows";
  Tensor x;     // [tokens, width] f32
  Tensor rows;  // [count] i32
  Tensor y;     // [count, width] f32

  Key key() const { return {}; }
};

// y = gate / (1 + exp(-gate)) * up
struct SiluMulArgs {
  static constexpr std::string_view kName = "silu_mul";
  Tensor gate;  // [rows, width] f32
  Tensor up;    // [rows, width] f32
  Tensor y;     // [rows, width] f32; may be `gate`

  Key key() const { return {}; }
};

// x += bias, for every row
struct AddBiasArgs {
  static constexpr std::string_view kName = "add_bias";
  Tensor x;     // [rows, width] f32; in place
  Tensor bias;  // [width] f32

  Key key() const { return {}; }
};

Status check(const EmbedArgs& args);
Cost cost(const EmbedArgs& args);
void reference(const EmbedArgs& args);

Status check(const GatherRowsArgs& args);
Cost cost(const GatherRowsArgs& args);
void reference(const GatherRowsArgs& args);

Status check(const SiluMulArgs& args);
Cost cost(const SiluMulArgs& args);
void reference(const SiluMulArgs& args);

Status check(const AddBiasArgs& args);
Cost cost(const AddBiasArgs& args);
void reference(const AddBiasArgs& args);

template <ArgsOf<EmbedArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("tokens", args.tokens);
  v.weight("table", args.table);
  v.out("y", args.y);
}

template <ArgsOf<GatherRowsArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.in("rows", args.rows);
  v.out("y", args.y);
}

template <ArgsOf<SiluMulArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("gate", args.gate);
  v.in("up", args.up);
  v.out("y", args.y);
}

template <ArgsOf<AddBiasArgs> A, class V>
void visit(A& args, V&& v) {
  v.inout("x", args.x);
  v.in("bias", args.bias);
}

}  // namespace reckoner
