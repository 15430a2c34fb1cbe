// Files, shards and the index.
#include <fmt/format.h>

#include "lint_case.h"

namespace reckoner {
namespace {

const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize "
    "12345678\n";

// Without tokenizer: the golden model has a smaller vocabulary than the one that comes with it.
void drop_text(const ModelCopy& m) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) m.remove(name);
}

constexpr const char* kUp = "model.layers.2.mlp.experts.3.up_proj.weight";  // BF16 [32, 64]

}  // namespace

std::span<const LintCase> file_cases() {
  static const std::vector<LintCase> cases = {
      {"ShardTruncated",
       Base::pocket,
       [](const ModelCopy& m) { m.resize(kShard2, -4096); },
       {"file-truncated: model-00002-of-00003.safetensors, (4096 missing), tensors are incomplete"}},
      {"ShardTruncatedInTheHeader",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kShard2, m.read(kShard2).substr(0, 500)); },
       {"file-unreadable: model-00002-of-00003.safetensors, inside the header"}},
      {"ShardIsAPointer",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kShard2, kPointer); },
       {"lfs-pointer: model-00002-of-00003.safetensors"}},
      {"ShardIsAWebPage",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kShard1, "<!DOCTYPE html><html></html>"); },
       {"file-unreadable: model-00001-of-00003.safetensors, web page"}},
      {"TokenizerIsAPointer",
       Base::pocket,
       [](const ModelCopy& m) { m.write("tokenizer.json", kPointer); },
       {"lfs-pointer: tokenizer.json"}},
      {"ShardPadded",
       Base::pocket,
       [](const ModelCopy& m) { m.resize(kShard2, 8); },
       {"file-trailing-bytes: model-00002-of-00003.safetensors, 8 bytes after the last tensor"}},
      {"ShardMissing", Base::pocket, [](const ModelCopy& m) { m.remove(kShard1); }, {"file-missing: model-00001-of-00003.safetensors"}},
      {"ShardReservedAndNeverFilled",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kShard2, std::string(1 << 20, '\0')); },
       {"file-not-filled: model-00002-of-00003.safetensors, not even a header"}},
      {"ThingsGoOnWithoutConfigAndAShard",
       Base::pocket,
       [](const ModelCopy& m) {
         m.write("config.json", "{");
         m.resize(kShard1, -1);
         m.set_f32(kShard2, "model.layers.2.mlp.experts.3.up_proj.weight_scale_2", 0, 0.0f);
       },
       {"config-unreadable: config.json, incomplete JSON", "file-truncated: model-00001-of-00003.safetensors",
        "scale-invalid: model.layers.2.mlp.experts.3.up_proj.weight_scale_2, found 0", "gate-up-scales-differ: up 0"}},
      {"Leftovers", Base::pocket, [](const ModelCopy& m) { m.write("abc.incomplete", "x"); }, {"download-leftovers: abc.incomplete"}},
      {"FileUnlisted",
       Base::pocket,
       [](const ModelCopy& m) { m.copy_tensor(kShard1, "old.safetensors", "model.norm.weight"); },
       {"file-unlisted: old.safetensors", "tensor-twice-unlisted: model.norm.weight, same bytes"}},
      {"TensorAllZero",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.put_tensor(kFile, kUp, DType::bf16, {32, 64});
       },
       {std::string("tensor-all-zero: ") + kUp}},
      {"IndexWithoutScales",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kIndex, "  \"model.layers.1.mlp.experts.0.down_proj.weight_scale\": \"model-00002-of-00003.safetensors\",\n", "");
       },
       {"index-incomplete: model.layers.1.mlp.experts.0.down_proj.weight_scale"}},
      {"IndexNotJson", Base::pocket, [](const ModelCopy& m) { m.write(kIndex, "{"); }, {"index-unreadable: incomplete JSON"}},
      {"IndexNamesATensorThatIsNot",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kIndex, "\"weight_map\": {", "\"weight_map\": {\n  \"model.extra\": \"model-00001-of-00003.safetensors\",");
       },
       {"index-missing-tensor: model.extra"}},
      {"IndexNamesAnotherFile",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kIndex, R"("model.norm.weight": "model-00001-of-00003.safetensors")",
                   R"("model.norm.weight": "model-00002-of-00003.safetensors")");
       },
       {"index-wrong-file: model.norm.weight, expected in model-00002-of-00003.safetensors"}},
      {"IndexPointsOutside",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kIndex, R"("model.norm.weight": "model-00001-of-00003.safetensors")", R"("model.norm.weight": "../x.safetensors")");
       },
       {"index-unreadable: ../x.safetensors"}},
      {"TotalSizeOff",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kIndex, R"("total_size": )", R"("total_size": 1)"); },
       {"total-size-off"}},
      {"TensorTwice",
       Base::pocket,
       [](const ModelCopy& m) { m.copy_tensor(kShard1, kShard2, "model.norm.weight"); },
       {"tensor-twice: model.norm.weight, with the same bytes"}},
      {"TensorTwiceWithOtherBytes",
       Base::pocket,
       [](const ModelCopy& m) {
         m.copy_tensor(kShard1, kShard2, "model.norm.weight");
         m.set_bytes(kShard2, "model.norm.weight", 0, {1, 2});
       },
       {"tensor-twice: model.norm.weight, with other bytes"}},
      {"ConfigMissing", Base::pocket, [](const ModelCopy& m) { m.remove("config.json"); }, {"config-unreadable: config.json, missing"}},
      {"FamilyUnknown",
       Base::pocket,
       [](const ModelCopy& m) { m.replace("config.json", R"("model_type": "glm_moe_dsa")", R"("model_type": "llama")"); },
       {"family-unknown: llama"}},
      {"WeightMissing",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.drop_tensor(kFile, "model.layers.1.self_attn.o_proj.weight");
       },
       {"weights-refused: model.layers.1.self_attn.o_proj.weight, missing"}},
      {"WeightUnknown",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.put_tensor(kFile, "model.layers.1.self_attn.extra.weight", DType::bf16, {4, 4});
       },
       {"weights-refused: model.layers.1.self_attn.extra.weight, unknown"}},
  };
  return cases;
}

}  // namespace reckoner
