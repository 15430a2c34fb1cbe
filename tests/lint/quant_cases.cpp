// Quantisation metadata against the tensors, formats, and scales.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lint_case.h"

namespace reckoner {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kHf = "hf_quant_config.json";
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void drop_text(const ModelCopy& m) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) m.remove(name);
}

std::string up(int layer, int expert, const char* part) {
  return fmt::format("model.layers.{}.mlp.experts.{}.up_proj.{}", layer, expert, part);
}

// The lists of both files.
void replace_in_both(const ModelCopy& m, const char* from, const char* to) {
  m.replace(kConfig, from, to);
  m.replace(kHf, from, to);
}

// The golden model with FP8 experts, called what it is; `scale_fmt` is a field or nothing.
void as_fp8(const ModelCopy& m, const std::string& scale_fmt) {
  drop_text(m);
  m.replace(kConfig, R"("vocab_size": 320)",
            fmt::format(R"("vocab_size": 320, "quantization_config": {{"quant_method": "fp8", "weight_block_size": [128, 128], {}
              "modules_to_not_convert": ["lm_head", "model.layers.0", "model.layers.1.self_attn", "model.layers.2.self_attn",
              "model.layers.3.self_attn", "model.layers.1.mlp.shared_experts", "model.layers.2.mlp.shared_experts",
              "model.layers.3.mlp.shared_experts"]}})",
                        scale_fmt));
}

constexpr const char* kUe8m0 = R"("scale_fmt": "ue8m0",)";

// Every scale of an expert becomes 2^-7.
void powers_of_two(const ModelCopy& m) {
  for (int layer = 1; layer < 4; ++layer) {
    for (int expert = 0; expert < 8; ++expert) {
      for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        m.set_f32(kFile, fmt::format("model.layers.{}.mlp.experts.{}.{}.weight_scale_inv", layer, expert, name), 0, 0.0078125f);
    }
  }
}

}  // namespace

std::span<const LintCase> quant_cases() {
  static const std::vector<LintCase> cases = {
      // Which file counts.
      {"ListsOfTheTwoFilesDiffer",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kConfig, "\"lm_head\",\n", ""); },
       {"quant-config-conflict: lm_head, only hf_quant_config.json has 'lm_head'"}},
      {"FormatsOfTheTwoFilesDiffer",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kHf, R"("quant_algo": "NVFP4")", R"("quant_algo": "FP8")"); },
       {"quant-config-conflict: NVFP4, FP8", "quant-config-contradicts-tensors: FP8, is NVFP4"}},
      {"KvCachesOfTheTwoFilesDiffer",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kHf, R"("kv_cache_quant_algo": null)", R"("kv_cache_quant_algo": "FP8")"); },
       {"quant-config-conflict: KV cache, FP8"}},
      {"StaleBlockOfATextModel",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kConfig, R"("vocab_size": 4096,)",
                   R"("vocab_size": 4096, "text_config": {"quantization_config": {"quant_method": "compressed-tensors",
           "format": "pack-quantized", "ignore": ["lm_head", "re:.*self_attn.*"]}},)");
       },
       {"quant-config-stale: text_config.quantization_config, pack-quantized"}},
      {"MetadataIsMissing", Base::fp8, drop_text, {"quant-config-missing: FP8 by block"}},
      {"MetadataUnreadable",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kHf, "{\"quantization\": {\"exclude_modules\": 3}}"); },
       {"config-unreadable: exclude_modules"}},
      // The list of unquantised modules.
      {"ListNamesAFusedModule",
       Base::pocket,
       [](const ModelCopy& m) { replace_in_both(m, "model.layers.1.self_attn*", "model.layers.1.self_attn.fused_qkv_a_proj_with_mqa"); },
       {"ignore-fused-name: fused_qkv_a_proj_with_mqa, q_a_proj", "unquantised-not-excluded: model.layers.1.self_attn.o_proj.weight"}},
      {"ListNamesThePartsOfAFusedModule",
       Base::pocket,
       [](const ModelCopy& m) {
         replace_in_both(m, "\"model.layers.1.self_attn*\"",
                         R"("*.self_attn.q_a_proj", "*.self_attn.kv_a_proj_with_mqa", "*.1.self_attn.*b_proj", "*.1.self_attn.o_proj",
           "*.1.self_attn.indexer*")");
       },
       {"ignore-by-parts: model.layers.1.self_attn.q_a_proj, '*.self_attn.q_a_proj'"}},
      {"ListWithoutPrefix",
       Base::pocket,
       [](const ModelCopy& m) { replace_in_both(m, "\"model.layers.2.self_attn*\"", "\"layers.2.self_attn*\""); },
       {"ignore-missing-prefix: 'model.layers.2.self_attn*' would", "unquantised-not-excluded: model.layers.2.self_attn"}},
      {"ListNamesWhatIsNotThere",
       Base::pocket,
       [](const ModelCopy& m) { replace_in_both(m, "\"lm_head\"", "\"lm_head\", \"model.layers.1.self_attn.indexers_proj\""); },
       {"ignore-nonexistent: indexers_proj"}},
      {"QuantisedThoughExcluded",
       Base::pocket,
       [](const ModelCopy& m) { replace_in_both(m, "\"lm_head\"", "\"lm_head\", \"model.layers.3.mlp.experts.7.*\""); },
       {"quantised-though-excluded: model.layers.3.mlp.experts.7.up_proj.weight, NVFP4"}},
      {"UnquantisedNotExcluded",
       Base::pocket,
       [](const ModelCopy& m) { replace_in_both(m, "\"model.layers.1.mlp.shared_experts*\",", ""); },
       {"unquantised-not-excluded: model.layers.1.mlp.shared_experts.up_proj.weight, BF16"}},
      {"SharedExpertsUnquantised",
       Base::pocket,
       [](const ModelCopy&) {},
       {"shared-expert-unquantised: layers.2.mlp.shared_experts.up_proj, BF16 [128, 256], U8 [256, 64]"}},
      // Formats.
      {"OneExpertOfAnotherFormat",
       Base::pocket,
       [](const ModelCopy& m) {
         for (const char* part : {"weight_scale", "weight_scale_2", "input_scale"}) m.drop_tensor(kShard2, up(2, 5, part));
         m.put_tensor(kShard2, up(2, 5, "weight"), DType::bf16, {128, 256});
         m.remove(kIndex);
         m.move(kShard2, "x.safetensors");
         m.move("x.safetensors", kShard2);
       },
       {"mixed-expert-formats: model.layers.2.mlp.experts.5.up_proj.weight, 15 experts of layer 2 are NVFP4",
        "unquantised-not-excluded: experts.5.up_proj", "tensor-all-zero: experts.5.up_proj"}},
      {"FormatUnsupported",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.put_tensor(kFile, "model.layers.1.self_attn.o_proj.weight", DType::i8, {64, 80});
       },
       {"unsupported-format: model.layers.1.self_attn.o_proj.weight, I8", "quant-config-missing", "tensor-all-zero"}},
      // Scales of whole tensors.
      {"ScaleMissing",
       Base::pocket,
       [](const ModelCopy& m) { m.drop_tensor(kShard2, up(2, 5, "weight_scale_2")); },
       {"scale-missing: model.layers.2.mlp.experts.5.up_proj.weight_scale_2", "index-missing-tensor: weight_scale_2"}},
      {"BlockScalesMissing",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, "");
         m.drop_tensor(kFile, up(2, 5, "weight_scale_inv"));
       },
       {"scale-missing: model.layers.2.mlp.experts.5.up_proj.weight_scale_inv", "mixed-expert-formats: experts.5"}},
      {"InputScaleMissing",
       Base::pocket,
       [](const ModelCopy& m) {
         m.drop_tensor(kShard2, "model.layers.2.mlp.experts.5.down_proj.input_scale");
         m.replace(kIndex, "  \"model.layers.2.mlp.experts.5.down_proj.input_scale\": \"model-00002-of-00003.safetensors\",\n", "");
       },
       {"input-scale-missing: layer 2, expert 5, model.layers.2.mlp.experts.5.down_proj.input_scale", "total-size-off"}},
      {"InputScaleZero",
       Base::pocket,
       [](const ModelCopy& m) { m.set_f32(kShard2, up(2, 5, "input_scale"), 0, 0.0f); },
       {"input-scale-invalid: model.layers.2.mlp.experts.5.up_proj.input_scale, found 0"}},
      {"InputScaleNaN",
       Base::pocket,
       [](const ModelCopy& m) { m.set_f32(kShard2, up(2, 5, "input_scale"), 0, kNaN); },
       {"input-scale-invalid: experts.5.up_proj, found NaN"}},
      {"InputScaleForTheGateOnly",
       Base::pocket,
       [](const ModelCopy& m) {
         m.drop_tensor(kShard2, up(2, 5, "input_scale"));
         m.replace(kIndex, "  \"model.layers.2.mlp.experts.5.up_proj.input_scale\": \"model-00002-of-00003.safetensors\",\n", "");
       },
       {"input-scale-missing: layer 2, expert 5, up_proj"}},
      {"ScaleNegative",
       Base::pocket,
       [](const ModelCopy& m) { m.set_f32(kShard2, up(2, 5, "weight_scale_2"), 0, -0.5f); },
       {"scale-invalid: experts.5.up_proj.weight_scale_2, found -0.5", "gate-up-scales-differ: up -0.5"}},
      {"ScaleInfinite",
       Base::pocket,
       [](const ModelCopy& m) { m.set_f32(kShard2, "model.layers.3.mlp.experts.1.down_proj.weight_scale_2", 0, kInfinity); },
       {"scale-invalid: experts.1.down_proj.weight_scale_2, found inf"}},
      {"ScaleDenormal",
       Base::pocket,
       [](const ModelCopy& m) { m.set_f32(kShard2, "model.layers.3.mlp.experts.1.down_proj.weight_scale_2", 0, 1e-40f); },
       {"scale-denormal: experts.1.down_proj.weight_scale_2"}},
      {"GateAndUpDiffer",
       Base::pocket,
       [](const ModelCopy& m) {
         m.set_f32(kShard2, "model.layers.2.mlp.experts.5.gate_proj.weight_scale_2", 0, 0.01f);
         m.set_f32(kShard2, up(2, 5, "weight_scale_2"), 0, 0.02f);
       },
       {"gate-up-scales-differ: layer 2, expert 5, gate 0.01, up 0.02"}},
      {"KeyAndValueScalesDiffer",
       Base::pocket,
       [](const ModelCopy& m) {
         for (const char* name : {"k", "v"}) {
           const std::string tensor = fmt::format("model.layers.1.self_attn.{0}_proj.{0}_scale", name);
           m.put_tensor(kShard2, tensor, DType::f32, {});
           m.set_f32(kShard2, tensor, 0, *name == 'k' ? 0.25f : 0.5f);
         }
       },
       {"kv-scales-differ: layer 1, k_scale 0.25, v_scale 0.5", "index-incomplete: k_scale"}},
      // Block scales.
      {"BlockScaleZeroOverWeights",
       Base::pocket,
       [](const ModelCopy& m) {
         m.set_bytes(kShard2, up(1, 3, "weight_scale"), 17, {0});  // 16 scales a row
         m.set_bytes(kShard2, up(1, 3, "weight"), 17 * 8, {0x21});
       },
       {"block-scale-zero: model.layers.1.mlp.experts.3.up_proj.weight_scale, row 1, block 1"}},
      {"BlockScaleZeroOverZeros",
       Base::pocket,
       [](const ModelCopy& m) {
         m.set_bytes(kShard2, up(1, 3, "weight_scale"), 17, {0});
         m.set_bytes(kShard2, up(1, 3, "weight"), 17 * 8, {0, 0x80, 0, 0x88, 0, 0, 0, 0});
       },
       {}},
      {"BlockScaleNaN",
       Base::pocket,
       [](const ModelCopy& m) { m.set_bytes(kShard2, up(1, 3, "weight_scale"), 35, {0x7f}); },
       {"block-scale-invalid: model.layers.1.mlp.experts.3.up_proj.weight_scale, NaN at row 2, block 3"}},
      {"BlockScaleNegative",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, "");
         m.set_f32(kFile, up(1, 3, "weight_scale_inv"), 0, -0.25f);
       },
       {"block-scale-invalid: experts.3.up_proj.weight_scale_inv, -0.25 at row 0, block 0", "fp8-scales-arbitrary"}},
      {"Fp8BlockScaleZero",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, "");
         m.set_f32(kFile, up(1, 3, "weight_scale_inv"), 0, 0.0f);
       },
       {"block-scale-zero: experts.3.up_proj.weight_scale_inv, row 0, block 0"}},
      {"Fp8NaN",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, "");
         m.set_bytes(kFile, up(2, 1, "weight"), 70, {0xff});
       },
       {"fp8-nan: model.layers.2.mlp.experts.1.up_proj.weight, element 70"}},
      // Powers of two, from the data and not only from the label.
      {"Fp8ScalesArbitrary", Base::fp8, [](const ModelCopy& m) { as_fp8(m, ""); }, {"fp8-scales-arbitrary: 72 of 72 tensors"}},
      {"Fp8ScalesClaimedToBePowers",
       Base::fp8,
       [](const ModelCopy& m) { as_fp8(m, kUe8m0); },
       {"ue8m0-not-so: weight_scale_inv, scale_fmt says ue8m0"}},
      {"Fp8ScalesClaimedAndPowers",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, kUe8m0);
         powers_of_two(m);
       },
       {}},
      {"Fp8ScalesPowersUnclaimed",
       Base::fp8,
       [](const ModelCopy& m) {
         as_fp8(m, "");
         powers_of_two(m);
       },
       {"ue8m0-unclaimed: 72 tensors"}},
  };
  return cases;
}

}  // namespace reckoner
