// A fault in each op of the vocabulary: trace names the op and the layer, replay the kernel.
#include "faulty.h"
#include "trace_support.h"

namespace reckoner::trace {
namespace {

struct FaultCase {
  std::string op;
  std::string model;
  std::int64_t call;  // of the op in the first step: which one is spoilt
  std::string place;  // where that is
};
void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.op; }

constexpr const char* kSparse = "tests/golden/glm_moe_dsa";
constexpr const char* kGrouped = "tests/golden/glm4_moe";

// Worked out by hand from model/forward.cpp and model/blocks; the models have one dense layer and then sparse ones.
const std::vector<FaultCase> kFaults = {
    {"embed", kSparse, 0, "embedding: embed embed_tokens"},
    {"rms_norm", kSparse, 3, "layer 1, input_norm: rms_norm"},
    {"linear", kSparse, 1, "layer 0, attention: linear kv_a_proj_with_mqa"},
    {"linear_experts", kSparse, 2, "layer 1, experts: linear_experts down_proj"},
    {"linear_group", kSparse, 1, "layer 0, attention: linear_group q_b_proj"},
    {"latent_query", kSparse, 1, "layer 1, attention: latent_query"},
    {"latent_value", kSparse, 1, "layer 1, attention: latent_value"},
    {"rope_angles", kSparse, 0, "embedding: rope_angles"},
    {"rope_heads", kSparse, 1, "layer 0, indexer: rope_heads"},
    {"store_latent", kSparse, 1, "layer 1, attention: store_latent"},
    {"store_index_key", kSparse, 1, "layer 1, indexer: store_index_key"},
    {"rotate_and_store", kSparse, 1, "layer 1, attention: rotate_and_store"},
    {"store_rows", kGrouped, 1, "layer 0, attention: store_rows 2"},
    {"index_select", kSparse, 1, "layer 1, indexer: index_select"},
    {"attend_latent", kSparse, 1, "layer 1, attention: attend_latent"},
    {"attend_grouped", kGrouped, 1, "layer 1, attention: attend_grouped"},
    {"silu_mul", kSparse, 2, "layer 1, experts: silu_mul"},
    {"add_bias", kGrouped, 4, "layer 1, attention: add_bias 2"},
    {"route", kSparse, 0, "layer 1, experts: route"},
    {"combine", kSparse, 0, "layer 1, experts: combine"},
    {"gather_rows", kSparse, 0, "head: gather_rows"},
    // Several ops in one go, which the faulty kernel alone serves here.
    {"gated_linear", kSparse, 1, "layer 1, shared_experts: gated_linear gate_proj"},
    {"gated_experts", kSparse, 0, "layer 1, experts: gated_experts gate_proj"},
    {"experts_combine", kSparse, 0, "layer 1, experts: experts_combine down_proj"},
};

template <class... Args>
std::vector<std::string> vocabulary(const PointersTo<Args...>*) {
  return {std::string(Args::kName)...};
}

TEST(Faults, CoverTheVocabulary) {
  std::vector<std::string> covered;
  for (const FaultCase& fault : kFaults) covered.push_back(fault.op);
  std::vector<std::string> all = vocabulary(static_cast<const AnyArgs*>(nullptr));
  std::sort(covered.begin(), covered.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(covered, all);
}

class OpFault : public testing::TestWithParam<FaultCase> {
 protected:
  // Traces a prompt of `tokens` tokens in one step, the call of the case being spoilt in every step.
  TraceReport traced(std::int64_t tokens, Spoil how, TraceWishes wishes) {
    const Catalogue faulty = with_faulty(cpu_catalogue(), GetParam().op, how);
    wishes.prompt = some_prompt(*stand.model, tokens);
    wishes.decode_steps = 0;
    wishes.bundle.path = folder.path / "bundle.safetensors";
    FaultyCalls::set(-1, 1);
    EXPECT_FALSE(stand.run(faulty, {.prompt = wishes.prompt, .decode_steps = 0}).origin) << "healthy as long as nothing is spoilt";
    const std::int64_t a_step = FaultyCalls::done;
    EXPECT_LT(GetParam().call, a_step) << "the op has fewer calls than that";
    FaultyCalls::set(GetParam().call, a_step);
    return stand.run(faulty, wishes);
  }
  void expect_replay_blames(const std::string& bundle, Spoil how) {
    FaultyCalls::set(0, 1);
    const ReplayReport replayed = stand.replayed(bundle, with_faulty(cpu_catalogue(), GetParam().op, how));
    EXPECT_EQ(replayed.wrong, std::vector<std::string>{GetParam().op + ".faulty"}) << replay_text(replayed);
    EXPECT_NE(replayed.conclusion.find(GetParam().op + ".faulty is wrong"), std::string::npos) << replayed.conclusion;
    EXPECT_EQ(replayed.rows.front().difference.beyond, 1) << "one element was spoilt, all others are what the bundle's numbers give";
    EXPECT_TRUE(replayed.bad_inputs.empty());
    const ReplayReport healthy = stand.replayed(bundle, cpu_catalogue());
    EXPECT_TRUE(healthy.wrong.empty()) << replay_text(healthy);
    const bool only_reference = GetParam().op.starts_with("gated_") || GetParam().op == "experts_combine";
    EXPECT_GE(healthy.rows.size(), only_reference ? 1u : 2u);
  }
  TraceStand stand{GetParam().model};
  const TraceFolder folder;
};

constexpr std::int64_t kTokens = 13;

TEST_P(OpFault, ANaNIsTracedToItsCallAndReplayNamesTheKernel) {
  const TraceReport report = traced(kTokens, Spoil::nan, {});
  // Writes no floats: a selection that is one short is found by checking calls, below.
  if (GetParam().op == "index_select") {
    EXPECT_FALSE(report.origin.has_value());
    return;
  }
  ASSERT_TRUE(report.origin.has_value());
  const Origin& origin = *report.origin;
  EXPECT_EQ(origin.call.text(), GetParam().place) << origin.sentence();
  EXPECT_EQ(origin.cause, Cause::kernel) << origin.sentence();
  EXPECT_EQ(origin.kernel, GetParam().op + ".faulty");
  EXPECT_EQ(origin.bad_rows, 1);
  EXPECT_EQ(origin.step, 0);
  EXPECT_EQ(origin.rank, 0);
  const bool by_slot = GetParam().op == "linear_experts" || GetParam().op == "silu_mul" || GetParam().op == "gated_experts";
  if (by_slot) {
    EXPECT_GE(origin.expert, 0);
  } else {
    EXPECT_EQ(origin.position, kTokens - 1) << "the last row was spoilt: " << origin.sentence();
  }
  ASSERT_NE(origin.bundle, "") << origin.bundle_error;
  expect_replay_blames(origin.bundle, Spoil::nan);
}

TEST_P(OpFault, AWrongButFiniteValueIsFoundByCheckingEachCall) {
  // More tokens than are selected (16): the indexer has something to do.
  const TraceReport report = traced(21, Spoil::off, {.check_ops = Wish::yes});
  EXPECT_FALSE(report.origin.has_value());
  ASSERT_TRUE(report.wrong.has_value());
  EXPECT_EQ(report.wrong->call.text(), GetParam().place) << report.wrong->sentence();
  EXPECT_EQ(report.wrong->kernel, GetParam().op + ".faulty");
  EXPECT_EQ(report.wrong_calls, 1) << "what comes after it is right, given what it was given";
  ASSERT_NE(report.wrong->bundle, "") << report.wrong->bundle_error;
  expect_replay_blames(report.wrong->bundle, Spoil::off);
}

std::string op_of(const testing::TestParamInfo<FaultCase>& info) { return info.param.op; }
INSTANTIATE_TEST_SUITE_P(, OpFault, testing::ValuesIn(kFaults), op_of);

}  // namespace
}  // namespace reckoner::trace
