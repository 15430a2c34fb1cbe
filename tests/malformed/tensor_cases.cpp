// Valid files with the wrong tensors in them: missing, unknown, of another dtype or shape, or with values that cannot be right.
#include <limits>

#include "cases.h"

namespace reckoner::malformed {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr const char* kNorm = "model.layers.2.input_layernorm.weight";                       // BF16 [64]
constexpr const char* kLinear = "model.layers.1.self_attn.o_proj.weight";                    // BF16 [64, 80]
constexpr const char* kRouterBias = "model.layers.3.mlp.gate.e_score_correction_bias";       // F32 [8]
constexpr const char* kExpert = "model.layers.1.mlp.experts.5.up_proj.weight";               // U8 [32, 32]
constexpr const char* kScales = "model.layers.1.mlp.experts.5.up_proj.weight_scale";         // F8_E4M3 [32, 4]
constexpr const char* kTensorScale = "model.layers.1.mlp.experts.5.up_proj.weight_scale_2";  // F32 []

const Case kCases[] = {
    {"NormMissing", Base::bf16, [](const ModelCopy& m) { m.drop_tensor(kFile, kNorm); }, R"(
DIR: tensor 'model.layers.2.input_layernorm.weight': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"LinearMissing", Base::bf16, [](const ModelCopy& m) { m.drop_tensor(kFile, kLinear); }, R"(
DIR: tensor 'model.layers.1.self_attn.o_proj.weight': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"RouterBiasMissing", Base::bf16, [](const ModelCopy& m) { m.drop_tensor(kFile, kRouterBias); }, R"(
DIR: tensor 'model.layers.3.mlp.gate.e_score_correction_bias': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"ExpertMissing", Base::nvfp4, [](const ModelCopy& m) { m.drop_tensor(kFile, kExpert); }, R"(
DIR: tensor 'model.layers.1.mlp.experts.5.up_proj.weight': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"BlockScalesMissing", Base::nvfp4, [](const ModelCopy& m) { m.drop_tensor(kFile, kScales); }, R"(
DIR: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': missing; a weight in NVFP4 needs it
  what to do: fetch the checkpoint again, or export it again)"},

    {"TensorScaleMissing", Base::nvfp4, [](const ModelCopy& m) { m.drop_tensor(kFile, kTensorScale); }, R"(
DIR: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': missing; a weight in NVFP4 needs it
  what to do: fetch the checkpoint again, or export it again)"},

    {"AllOfALayerMissing", Base::bf16,
     [](const ModelCopy& m) {
       for (const char* name : {"gate_proj", "up_proj", "down_proj"})
         m.drop_tensor(kFile, "model.layers.0.mlp." + std::string(name) + ".weight");
     },
     R"(
DIR: tensor 'model.layers.0.mlp.gate_proj.weight': missing
DIR: tensor 'model.layers.0.mlp.up_proj.weight': missing
DIR: tensor 'model.layers.0.mlp.down_proj.weight': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"TensorRenamed", Base::bf16, [](const ModelCopy& m) { m.rename_tensor(kFile, kLinear, "model.layers.1.self_attn.out_proj.weight"); },
     R"(
DIR: tensor 'model.layers.1.self_attn.o_proj.weight': missing
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"TensorUnknown", Base::bf16,
     [](const ModelCopy& m) { m.put_tensor(kFile, "model.layers.1.self_attn.o_proj.bias", DType::bf16, {64}); }, R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.bias': unknown; a glm_moe_dsa of 4 layers has no such tensor
  what to do: check that config.json belongs to these weights)"},

    {"ManyTensorsUnknown", Base::bf16,
     [](const ModelCopy& m) {
       for (int i = 0; i < 12; ++i) m.put_tensor(kFile, "adapter." + std::to_string(i), DType::f32, {1});
     },
     R"(
model.safetensors: tensor 'adapter.0': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.1': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.10': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.11': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.2': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.3': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.4': unknown; a glm_moe_dsa of 4 layers has no such tensor
model.safetensors: tensor 'adapter.5': unknown; a glm_moe_dsa of 4 layers has no such tensor
... and 4 more like these
  what to do: check that config.json belongs to these weights)"},

    {"LinearOfAnotherShape", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kLinear, DType::bf16, {80, 64});
     },
     R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight': expected shape [64, 80] by config.json, found [80, 64]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"LinearOfOneDimension", Base::bf16, [](const ModelCopy& m) { m.put_tensor(kFile, kLinear, DType::bf16, {64 * 80}); }, R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight': expected shape [64, 80] by config.json, found [5120]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"LinearWithoutRows", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kLinear, DType::bf16, {0, 80});
     },
     R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight': expected shape [64, 80] by config.json, found [0, 80]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"NormOfAnotherShape", Base::bf16, [](const ModelCopy& m) { m.put_tensor(kFile, kNorm, DType::bf16, {63}); }, R"(
model.safetensors: tensor 'model.layers.2.input_layernorm.weight': expected F32, F16 or BF16 [64], found BF16 [63]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"NormOfIntegers", Base::bf16, [](const ModelCopy& m) { m.put_tensor(kFile, kNorm, DType::i8, {64}); }, R"(
model.safetensors: tensor 'model.layers.2.input_layernorm.weight': expected F32, F16 or BF16 [64], found I8 [64]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"LinearOfI32", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kLinear, DType::i32, {64, 80});
     },
     R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight': dtype I32 is not a weight format that Reckoner reads (F32, F16, BF16; NVFP4, MXFP4, MXFP8, INT4 in groups of 32, FP8 by block, channel or tensor)
  what to do: use an export of the model in one of these formats)"},

    {"LinearOfFp8", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kLinear, DType::f8_e4m3, {64, 80});
     },
     R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight': F8_E4M3 without scales; expected weight_scale_inv or weight_scale beside it
  what to do: fetch the checkpoint again; a shard may not have been downloaded)"},

    {"U8WithoutScales", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kLinear, DType::u8, {64, 40});
     },
     R"(
DIR: tensor 'model.layers.1.self_attn.o_proj.weight_scale': missing; a weight in NVFP4 needs it
  what to do: fetch the checkpoint again, or export it again)"},

    {"U8OfTheUnpackedShape", Base::nvfp4,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kExpert, DType::u8, {32, 64});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight': expected U8 [32, 32], found U8 [32, 64]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"U8OfColumnsThatAreNoBlocks", Base::bf16,
     [](const ModelCopy& m) {
       m.replace("config.json", R"("v_head_dim": 20)", R"("v_head_dim": 18)");
       m.put_tensor(kFile, "model.layers.0.self_attn.o_proj.weight", DType::u8, {64, 36});
       for (int layer = 0; layer < 4; ++layer) {
         const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
         m.put_tensor(kFile, attention + "kv_b_proj.weight", DType::bf16, {168, 32});
         if (layer > 0) m.put_tensor(kFile, attention + "o_proj.weight", DType::bf16, {64, 72});
       }
     },
     R"(
model.safetensors: tensor 'model.layers.0.self_attn.o_proj.weight': NVFP4 needs a multiple of 16 columns, config.json says 72
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"BlockScalesOfF32", Base::nvfp4,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kScales, DType::f32, {32, 4});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected F8_E4M3 [32, 4], found F32 [32, 4]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"BlockScalesForBlocksOf32", Base::nvfp4,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kScales, DType::f8_e4m3, {32, 2});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected F8_E4M3 [32, 4], found F8_E4M3 [32, 2]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"BlockScaleNaN", Base::nvfp4, [](const ModelCopy& m) { m.set_bytes(kFile, kScales, 3 * 4 + 2, {0x7f}); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected finite block scales above zero, found NaN at row 3, block 2
  what to do: the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again)"},

    {"BlockScaleNegative", Base::nvfp4, [](const ModelCopy& m) { m.set_bytes(kFile, kScales, 31 * 4 + 3, {0xb8}); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected finite block scales above zero, found -1 at row 31, block 3
  what to do: the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again)"},

    {"BlockScaleZeroOverCodesThatAreNot", Base::nvfp4,
     [](const ModelCopy& m) {
       m.set_bytes(kFile, kScales, 7 * 4 + 1, {0});
       m.set_bytes(kFile, kExpert, 7 * 32 + 8, {0, 0, 0, 0, 0, 0, 0, 0x10});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected finite block scales above zero, found 0 at row 7, block 1
  what to do: the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again)"},

    {"BlockScaleMinusZeroOverCodesThatAreNot", Base::nvfp4,
     [](const ModelCopy& m) {
       m.set_bytes(kFile, kScales, 0, {0x80});
       m.set_bytes(kFile, kExpert, 0, {0x07});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected finite block scales above zero, found 0 at row 0, block 0
  what to do: the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again)"},

    {"BlockScalesNeverFilled", Base::nvfp4,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kScales, DType::f8_e4m3, {32, 4});
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale': expected finite block scales above zero, found 0 at row 0, block 0
  what to do: the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again)"},

    {"TensorScaleZero", Base::nvfp4, [](const ModelCopy& m) { m.set_f32(kFile, kTensorScale, 0, 0.0f); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected a finite scale above zero, found 0
  what to do: the export went wrong (an expert without calibration?): export again, or fetch another copy)"},

    {"TensorScaleNegative", Base::nvfp4, [](const ModelCopy& m) { m.set_f32(kFile, kTensorScale, 0, -0.5f); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected a finite scale above zero, found -0.5
  what to do: the export went wrong (an expert without calibration?): export again, or fetch another copy)"},

    {"TensorScaleNaN", Base::nvfp4, [](const ModelCopy& m) { m.set_f32(kFile, kTensorScale, 0, kNaN); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected a finite scale above zero, found nan
  what to do: the export went wrong (an expert without calibration?): export again, or fetch another copy)"},

    {"TensorScaleInfinite", Base::nvfp4, [](const ModelCopy& m) { m.set_f32(kFile, kTensorScale, 0, kInfinity); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected a finite scale above zero, found inf
  what to do: the export went wrong (an expert without calibration?): export again, or fetch another copy)"},

    {"TensorScaleOfBf16", Base::nvfp4, [](const ModelCopy& m) { m.put_tensor(kFile, kTensorScale, DType::bf16, {}); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected F32 [], found BF16 []
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"TensorScaleForEachRow", Base::nvfp4, [](const ModelCopy& m) { m.put_tensor(kFile, kTensorScale, DType::f32, {32}); }, R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight_scale_2': expected F32 [], found F32 [32]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"OneExpertInAnotherFormat", Base::nvfp4,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, kExpert, DType::bf16, {32, 64});
       m.drop_tensor(kFile, kScales);
       m.drop_tensor(kFile, kTensorScale);
     },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.experts.5.up_proj.weight': expected NVFP4 as in expert 0 of this layer, found BF16
  what to do: export the model with all experts of a layer in one format)"},

    {"ScalesBesideABf16Weight", Base::bf16,
     [](const ModelCopy& m) {
       m.put_tensor(kFile, "model.layers.1.self_attn.o_proj.weight_scale", DType::f32, {64, 1});
     },
     R"(
model.safetensors: tensor 'model.layers.1.self_attn.o_proj.weight_scale': unknown; a glm_moe_dsa of 4 layers has no such tensor
  what to do: check that config.json belongs to these weights)"},

    {"NormWithNaN", Base::bf16,
     [](const ModelCopy& m) {
       m.set_bytes(kFile, kNorm, 2 * 17, {0xc0, 0x7f});
     },
     R"(
model.safetensors: tensor 'model.layers.2.input_layernorm.weight': expected finite values, found nan at element 17
  what to do: the file is damaged or its export went wrong: fetch another copy)"},

    {"NormInfinite", Base::bf16,
     [](const ModelCopy& m) {
       m.set_bytes(kFile, kNorm, 2 * 63, {0x80, 0x7f});
     },
     R"(
model.safetensors: tensor 'model.layers.2.input_layernorm.weight': expected finite values, found inf at element 63
  what to do: the file is damaged or its export went wrong: fetch another copy)"},

    {"RouterBiasNaN", Base::bf16, [](const ModelCopy& m) { m.set_f32(kFile, kRouterBias, 7, kNaN); }, R"(
model.safetensors: tensor 'model.layers.3.mlp.gate.e_score_correction_bias': expected finite values, found nan at element 7
  what to do: the file is damaged or its export went wrong: fetch another copy)"},

    {"RouterBiasInfinite", Base::bf16, [](const ModelCopy& m) { m.set_f32(kFile, kRouterBias, 0, -kInfinity); }, R"(
model.safetensors: tensor 'model.layers.3.mlp.gate.e_score_correction_bias': expected finite values, found -inf at element 0
  what to do: the file is damaged or its export went wrong: fetch another copy)"},
};

}  // namespace

std::span<const Case> tensor_cases() { return kCases; }

}  // namespace reckoner::malformed
