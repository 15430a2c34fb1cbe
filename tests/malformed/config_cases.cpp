// config.json, generation_config.json and hf_quant_config.json: not JSON, fields of another type or range, and fields that contradict
// each other or the weights.
#include "cases.h"

namespace reckoner::malformed {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kQuant = "hf_quant_config.json";

const Case kCases[] = {
    {"Absent", Base::bf16, [](const ModelCopy& m) { m.remove(kConfig); }, R"(
DIR/config.json: cannot open: No such file or directory
  what to do: check the path; if the model was downloaded, download it again to complete it)"},

    {"Empty", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, ""); }, R"(
DIR/config.json: expected JSON, found nothing
  what to do: download or write the file again)"},

    {"NotJson", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, "model_type: glm_moe_dsa\n"); }, R"(
DIR/config.json: line 1, column 1: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"Truncated", Base::bf16, [](const ModelCopy& m) { m.resize(kConfig, -300); }, R"(
DIR/config.json: line 54, column 18: incomplete JSON
  what to do: this is not valid JSON: download or correct it)"},

    {"TrailingComma", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("vocab_size": 320)", R"("vocab_size": 320,)"); }, R"(
DIR/config.json: line 67, column 1: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"PythonWords", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("norm_topk_prob": true)", R"("norm_topk_prob": True)"); },
     R"(
DIR/config.json: line 45, column 21: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"AList", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, "[]"); }, R"(
DIR/config.json: expected an object, found an array of 0
  what to do: correct the file, or download it again)"},

    {"GitLfsPointer", Base::bf16,
     [](const ModelCopy& m) { m.write(kConfig, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1452\n"); }, R"(
DIR/config.json: expected JSON, found a Git LFS pointer: the file's content was not downloaded
  what to do: run `git lfs pull` in that folder)"},

    {"WebPage", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, "<!DOCTYPE html>\n<html></html>\n"); }, R"(
DIR/config.json: line 1, column 1: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"FieldTwice", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("vocab_size": 320)", R"("vocab_size": 320, "vocab_size": 321)"); }, R"(
DIR/config.json: line 66, column 33: the key "vocab_size" occurs twice in one object
  what to do: remove one of the two)"},

    {"FieldOfAnotherType", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("hidden_size": 64)", R"("hidden_size": "64")"); },
     R"(
DIR/config.json: field 'hidden_size': expected an integer from 1 to 16777216, found the string "64"
  what to do: correct the file, or download it again)"},

    {"FieldWithAFraction", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("index_topk": 16)", R"("index_topk": 16.5)"); },
     R"(
DIR/config.json: field 'index_topk': expected an integer from 1 to 1073741824, found the number 16.5
  what to do: correct the file, or download it again)"},

    {"FieldMissing", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("hidden_size": 64,)", ""); }, R"(
DIR/config.json: field 'hidden_size' is missing: every model needs it
  what to do: add the field, or download the file again)"},

    {"FieldOfTheFamilyMissing", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("q_lora_rank": 48,)", ""); }, R"(
DIR/config.json: field 'q_lora_rank' is missing: glm_moe_dsa models need it
  what to do: add the field, or download the file again)"},

    {"FieldNull", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("n_shared_experts": 1)", R"("n_shared_experts": null)"); },
     R"(
DIR/config.json: field 'n_shared_experts' is missing: glm_moe_dsa models need it
  what to do: add the field, or download the file again)"},

    {"Negative", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("num_attention_heads": 4)", R"("num_attention_heads": -4)"); },
     R"(
DIR/config.json: field 'num_attention_heads': expected an integer from 1 to 16777216, found the number -4
  what to do: correct the file, or download it again)"},

    {"AbsurdlyLarge", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("vocab_size": 320)", R"("vocab_size": 1e15)"); }, R"(
DIR/config.json: field 'vocab_size': expected an integer from 1 to 16777216, found the number 1000000000000000
  what to do: correct the file, or download it again)"},

    {"BeyondAllIntegers", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("hidden_size": 64)", R"("hidden_size": 99999999999999999999)"); }, R"(
DIR/config.json: field 'hidden_size': expected an integer from 1 to 16777216, found the number 1e+20
  what to do: correct the file, or download it again)"},

    {"Infinite", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("rms_norm_eps": 1e-05)", R"("rms_norm_eps": 1e999)"); },
     R"(
DIR/config.json: field 'rms_norm_eps': expected a finite number, found the number inf
  what to do: correct the file, or download it again)"},

    // In range each, but there is no such model, and no memory for the list of its experts.
    {"BillionsOfExperts", Base::pocket,
     [](const ModelCopy& m) {
       m.replace(kConfig, R"("num_hidden_layers": 4)", R"("num_hidden_layers": 10000)");
       m.replace(kConfig, R"("n_routed_experts": 16)", R"("n_routed_experts": 16777216)");
     },
     R"(
DIR/config.json: num_hidden_layers = 10000 and n_routed_experts = 16777216 ask for 503266338353 weights, the checkpoint has 724 tensors
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"OneExpertTooMany", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("n_routed_experts": 8)", R"("n_routed_experts": 9)"); },
     R"(
model.safetensors: tensor 'model.layers.1.mlp.gate.weight': expected shape [9, 64] by config.json, found [8, 64]
model.safetensors: tensor 'model.layers.2.mlp.gate.weight': expected shape [9, 64] by config.json, found [8, 64]
model.safetensors: tensor 'model.layers.3.mlp.gate.weight': expected shape [9, 64] by config.json, found [8, 64]
model.safetensors: tensor 'model.layers.1.mlp.gate.e_score_correction_bias': expected F32, F16 or BF16 [9], found F32 [8]
model.safetensors: tensor 'model.layers.2.mlp.gate.e_score_correction_bias': expected F32, F16 or BF16 [9], found F32 [8]
model.safetensors: tensor 'model.layers.3.mlp.gate.e_score_correction_bias': expected F32, F16 or BF16 [9], found F32 [8]
DIR: tensor 'model.layers.1.mlp.experts.8.gate_proj.weight': missing
DIR: tensor 'model.layers.2.mlp.experts.8.gate_proj.weight': missing
... and 7 more like these
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"OneLayerTooFew", Base::bf16,
     [](const ModelCopy& m) {
       m.replace(kConfig, R"("num_hidden_layers": 4)", R"("num_hidden_layers": 3)");
       m.replace(kConfig, "\"dense\",\n    \"sparse\",", R"("dense",)");
       m.replace(kConfig, "\"indexer_types\": [\n    \"full\",", R"("indexer_types": [)");
     },
     R"(
model.safetensors: tensor 'model.layers.3.input_layernorm.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.0.down_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.0.gate_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.0.up_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.1.down_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.1.gate_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.1.up_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model.safetensors: tensor 'model.layers.3.mlp.experts.2.down_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
... and 35 more like these
  what to do: check that config.json belongs to these weights)"},

    {"OneLayerTooFewBeforeAnMtpLayer", Base::pocket,
     [](const ModelCopy& m) { m.replace(kConfig, R"("num_hidden_layers": 4)", R"("num_hidden_layers": 3)"); }, R"(
model-00002-of-00003.safetensors: tensor 'model.layers.3.input_layernorm.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.down_proj.input_scale': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.down_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.down_proj.weight_scale': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.down_proj.weight_scale_2': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.gate_proj.input_scale': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.gate_proj.weight': unknown; a glm_moe_dsa of 3 layers has no such tensor
model-00002-of-00003.safetensors: tensor 'model.layers.3.mlp.experts.0.gate_proj.weight_scale': unknown; a glm_moe_dsa of 3 layers has no such tensor
... and 274 more like these
  what to do: check that config.json belongs to these weights)"},

    {"AnotherWidth", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("intermediate_size": 96)", R"("intermediate_size": 128)"); }, R"(
model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight': expected shape [128, 64] by config.json, found [96, 64]
model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight': expected shape [128, 64] by config.json, found [96, 64]
model.safetensors: tensor 'model.layers.0.mlp.down_proj.weight': expected shape [64, 128] by config.json, found [64, 96]
  what to do: config.json and the weights are of different models, or the file is damaged: fetch both again)"},

    {"ModelTypeUnknown", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("glm_moe_dsa")", R"("llama")"); }, R"(
DIR/config.json: field 'model_type': "llama" is not a model family that Reckoner knows (it knows: glm_moe_dsa, deepseek_v32, deepseek_v3, kimi_k2, kimi_k25, glm4_moe, glm4_moe_lite)
  what to do: use a model of one of these families)"},

    {"ModelTypeMissing", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("model_type": "glm_moe_dsa",)", ""); }, R"(
DIR/config.json: field 'model_type': missing
  what to do: add the field, or download the file again)"},

    {"ActivationUnsupported", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("hidden_act": "silu")", R"("hidden_act": "gelu")"); }, R"(
DIR/config.json: field 'hidden_act': expected "silu", the only one supported, found the string "gelu"
  what to do: correct the file, or download it again)"},

    {"RopeThetaMissing", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("rope_theta": 1000000.0,)", ""); }, R"(
DIR/config.json: field 'rope_theta' is missing: neither in rope_parameters, nor in rope_scaling, nor at the top level
  what to do: add the value that the model was trained with; there is no safe default)"},

    {"RopeThetasInConflict", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("vocab_size": 320)", R"("vocab_size": 320, "rope_theta": 10000)"); }, R"(
DIR/config.json: field 'rope_theta': contradicts field 'rope_parameters.rope_theta': 10000 and 1000000
  what to do: make the two equal, or remove the wrong one)"},

    {"RopeThetaZero", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("rope_theta": 1000000.0)", R"("rope_theta": 0)"); },
     R"(
DIR/config.json: field 'rope_parameters.rope_theta': expected a number above 1 and at most 1000000000000, found the number 0
  what to do: correct the file, or download it again)"},

    {"RopeTypeUnknown", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("rope_type": "default")", R"("rope_type": "llama3", "factor": 8)"); }, R"(
DIR/config.json: field 'rope_parameters.rope_type': expected one of the supported types "default", "yarn", "deepseek_yarn", found the string "llama3"
  what to do: correct the file, or download it again)"},

    {"Yarn", Base::bf16,
     [](const ModelCopy& m) {
       m.replace(kConfig, R"("rope_type": "default")", R"("rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 4096)");
     },
     R"(
DIR/config.json: field 'rope_parameters.rope_type': expected "default" for glm_moe_dsa, found "yarn"
  what to do: no published GLM-5 uses YaRN; check where this config comes from)"},

    {"FirstIndexerShared", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, "\"indexer_types\": [\n    \"full\"", R"("indexer_types": ["shared")"); }, R"(
DIR/config.json: indexer_types: layer 0 is shared, but there is no layer before it to share with
  what to do: correct the file so that layer 0 is full, or download it again)"},

    {"IndexerTypesTooShort", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, "\"indexer_types\": [\n    \"full\",", R"("indexer_types": [)"); }, R"(
DIR/config.json: field 'indexer_types': expected 4 entries (num_hidden_layers), found 3
  what to do: correct the file, or download it again)"},

    {"IndexerTypeUnknown", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, "\"indexer_types\": [\n    \"full\"", R"("indexer_types": ["none")"); }, R"(
DIR/config.json: field 'indexer_types[0]': expected "full" or "shared", found the string "none"
  what to do: correct the file, or download it again)"},

    {"MlpTypesInConflict", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("first_k_dense_replace": 1)", R"("first_k_dense_replace": 2)"); }, R"(
DIR/config.json: field 'mlp_layer_types': contradicts first_k_dense_replace and moe_layer_freq: layer 1 is sparse here and dense there
  what to do: correct the wrong one, or remove it)"},

    {"GroupsDoNotDivideExperts", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("n_group": 1)", R"("n_group": 3)"); }, R"(
DIR/config.json: field 'n_group': expected a divisor of n_routed_experts = 8, found 3
  what to do: correct the file, or download it again)"},

    {"MoreGroupsKeptThanThereAre", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("topk_group": 1)", R"("topk_group": 2)"); },
     R"(
DIR/config.json: field 'topk_group': expected at most n_group = 1, found 2
  what to do: correct the file, or download it again)"},

    {"MoreExpertsPerTokenThanThereAre", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 9)"); }, R"(
DIR/config.json: field 'num_experts_per_tok': expected at most 8, the experts in topk_group = 1 groups, found 9
  what to do: correct the file, or download it again)"},

    {"NoSharedExpert", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("n_shared_experts": 1)", R"("n_shared_experts": 0)"); },
     R"(
DIR/config.json: field 'n_shared_experts': expected at least 1 for glm_moe_dsa, found 0
  what to do: check where this config comes from)"},

    {"RopeDimOdd", Base::bf16, [](const ModelCopy& m) { m.replace(kConfig, R"("qk_rope_head_dim": 16)", R"("qk_rope_head_dim": 15)"); },
     R"(
DIR/config.json: field 'qk_rope_head_dim': expected an even number, found 15
  what to do: correct the file, or download it again)"},

    {"HeadDimNotTheSumOfItsParts", Base::bf16,
     [](const ModelCopy& m) { m.replace(kConfig, R"("qk_head_dim": 40)", R"("qk_head_dim": 48)"); }, R"(
DIR/config.json: field 'qk_head_dim': expected qk_nope_head_dim + qk_rope_head_dim = 40, found 48
  what to do: correct the file, or download it again)"},

    {"EosOutsideTheVocabulary", Base::bf16,
     [](const ModelCopy& m) {
       m.replace(kConfig, R"("eos_token_id": 1)", R"("eos_token_id": 320)");
       m.remove(kGeneration);
     },
     R"(
DIR/config.json: field 'eos_token_id': expected ids below vocab_size = 320, found 320
  what to do: check that the file belongs to this model, or download it again)"},

    {"GenerationEosOutsideTheVocabulary", Base::bf16,
     [](const ModelCopy& m) { m.replace(kGeneration, R"("eos_token_id": 1)", R"("eos_token_id": [1, 151329])"); }, R"(
DIR/generation_config.json: field 'eos_token_id': expected ids below vocab_size = 320, found 151329
  what to do: check that the file belongs to this model, or download it again)"},

    {"GenerationEosIsText", Base::bf16,
     [](const ModelCopy& m) { m.replace(kGeneration, R"("eos_token_id": 1)", R"("eos_token_id": "<|endoftext|>")"); }, R"(
DIR/generation_config.json: field 'eos_token_id': expected an integer from 0 to 2147483647, found the string "<|endoftext|>"
  what to do: correct the file, or download it again)"},

    {"GenerationTopPTooLarge", Base::bf16,
     [](const ModelCopy& m) { m.replace(kGeneration, R"("eos_token_id": 1)", R"("eos_token_id": 1, "top_p": 95)"); }, R"(
DIR/generation_config.json: field 'top_p': expected a number above 0 and at most 1, found the number 95
  what to do: correct the file, or download it again)"},

    {"GenerationNotJson", Base::bf16, [](const ModelCopy& m) { m.write(kGeneration, "{"); }, R"(
DIR/generation_config.json: line 1, column 2: incomplete JSON
  what to do: this is not valid JSON: download or correct it)"},

    {"QuantNotJson", Base::nvfp4, [](const ModelCopy& m) { m.write(kQuant, "quantization: NVFP4\n"); }, R"(
DIR/hf_quant_config.json: line 1, column 1: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"QuantWithoutQuantization", Base::nvfp4, [](const ModelCopy& m) { m.write(kQuant, "{}"); }, R"(
DIR/hf_quant_config.json: field 'quantization': missing
  what to do: add the field, or download the file again)"},

    {"QuantGroupsOf32", Base::nvfp4, [](const ModelCopy& m) { m.replace(kQuant, R"("group_size": 16)", R"("group_size": 32)"); }, R"(
DIR/hf_quant_config.json: field 'quantization': expected a group_size of 16 for NVFP4, found 32
  what to do: correct the file, or download it again)"},

    {"QuantExcludeIsText", Base::nvfp4, [](const ModelCopy& m) { m.replace(kQuant, R"(["lm_head"])", R"("lm_head")"); }, R"(
DIR/hf_quant_config.json: field 'quantization.exclude_modules': expected an array, found the string "lm_head"
  what to do: correct the file, or download it again)"},

    {"QuantMethodUnknown", Base::bf16,
     [](const ModelCopy& m) {
       m.replace(kConfig, R"("vocab_size": 320)", R"("vocab_size": 320, "quantization_config": {"quant_method": "awq"})");
     },
     R"(
DIR/config.json: field 'quantization_config.quant_method': expected one of the supported methods "modelopt", "compressed-tensors", "fp8", found the string "awq"
  what to do: correct the file, or download it again)"},
};

}  // namespace

std::span<const Case> config_cases() { return kCases; }

}  // namespace reckoner::malformed
