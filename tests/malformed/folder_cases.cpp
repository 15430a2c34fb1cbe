// The folder, its shards and their index.
#include <fstream>

#include "cases.h"

namespace reckoner::malformed {
namespace {

constexpr const char* kNorm = "model.norm.weight";  // in the third shard

const Case kCases[] = {
    {"FolderAbsent", Base::bf16, [](const ModelCopy& m) { std::filesystem::remove_all(m.path()); }, R"(
DIR: the model folder does not exist
  what to do: check the path, or download the model)"},

    {"FolderIsAFile", Base::bf16,
     [](const ModelCopy& m) {
       std::filesystem::remove_all(m.path());
       std::ofstream(m.path()) << "GGUF";
     },
     R"(
DIR: expected a model folder, found a file
  what to do: give the folder that holds config.json)"},

    {"FolderEmpty", Base::bf16, [](const ModelCopy& m) { m.remove_all(); }, R"(
DIR: expected model.safetensors.index.json or model.safetensors, found an empty folder
  what to do: download the model's safetensors files; other formats (GGUF, PyTorch .bin) are not read)"},

    {"OnlyGguf", Base::bf16,
     [](const ModelCopy& m) {
       m.remove_all();
       m.write("model-Q4_K_M-00001-of-00002.gguf", "GGUF");
       m.write("model-Q4_K_M-00002-of-00002.gguf", "GGUF");
     },
     R"(
DIR: expected model.safetensors.index.json or model.safetensors, found only: model-Q4_K_M-00001-of-00002.gguf, model-Q4_K_M-00002-of-00002.gguf
  what to do: download the model's safetensors files; other formats (GGUF, PyTorch .bin) are not read)"},

    {"OnlyPyTorchBin", Base::bf16,
     [](const ModelCopy& m) {
       m.remove(kFile);
       m.write("pytorch_model.bin", "PK\x03\x04");
     },
     R"(
DIR: expected model.safetensors.index.json or model.safetensors, found only: chat_template.jinja, config.json, generation_config.json, pytorch_model.bin, tokenizer.json, tokenizer_config.json
  what to do: download the model's safetensors files; other formats (GGUF, PyTorch .bin) are not read)"},

    {"SafetensorsUnfinished", Base::bf16, [](const ModelCopy& m) { m.move(kFile, "model.safetensors.incomplete"); }, R"(
DIR: expected model.safetensors.index.json or model.safetensors, found only: chat_template.jinja, config.json, generation_config.json, model.safetensors.incomplete, tokenizer.json, tokenizer_config.json; unfinished downloads are here: model.safetensors.incomplete
  what to do: download the model's safetensors files; other formats (GGUF, PyTorch .bin) are not read)"},

    {"ShardMissing", Base::sharded, [](const ModelCopy& m) { m.remove(kShard2); }, R"(
DIR/model.safetensors.index.json: 1 of 3 files are missing: model-00002-of-00003.safetensors
  what to do: download the files named again)"},

    {"TwoShardsMissingAndOneDamaged", Base::sharded,
     [](const ModelCopy& m) {
       m.remove(kShard1);
       m.move(kShard3, "model-00003-of-00003.safetensors.part");
       m.write(kShard2, "<html><body>503 Service Unavailable</body></html>");
     },
     R"(
DIR/model.safetensors.index.json: 2 of 3 files are missing: model-00001-of-00003.safetensors, model-00003-of-00003.safetensors; unfinished downloads are here: model-00003-of-00003.safetensors.part
DIR/model-00002-of-00003.safetensors: expected a safetensors file, found a web page: the download was answered with an error or a login page
  what to do: download the files named again)"},

    {"ShardIsAFolder", Base::sharded,
     [](const ModelCopy& m) {
       m.remove(kShard2);
       std::filesystem::create_directory(m.path() / kShard2);
     },
     R"(
DIR/model-00002-of-00003.safetensors: expected a file, found a folder
  what to do: give the path of a file)"},

    {"ShardIsADeadLink", Base::sharded,
     [](const ModelCopy& m) {
       m.remove(kShard2);
       std::filesystem::create_symlink("../../blobs/0123456789abcdef", m.path() / kShard2);
     },
     R"(
DIR/model.safetensors.index.json: 1 of 3 files are missing: model-00002-of-00003.safetensors
  what to do: download the files named again)"},

    {"ShardEmpty", Base::sharded, [](const ModelCopy& m) { m.write(kShard2, ""); }, R"(
DIR/model-00002-of-00003.safetensors: the file is empty
  what to do: download it again)"},

    {"ShardTruncated", Base::sharded, [](const ModelCopy& m) { m.resize(kShard2, -1000); }, R"(
DIR/model-00002-of-00003.safetensors: truncated: expected 174360 bytes, found 173360; 1 of 121 tensors are incomplete, the first is 'model.layers.2.self_attn.indexer.wk.weight'
  what to do: download this file again)"},

    {"ShardPadded", Base::sharded, [](const ModelCopy& m) { m.resize(kShard2, 512); }, R"(
DIR/model-00002-of-00003.safetensors: padded: expected 174360 bytes, found 174872; 512 bytes after the last tensor belong to no tensor
  what to do: download this file again)"},

    {"ShardOfZeros", Base::sharded, [](const ModelCopy& m) { m.write(kShard2, std::string(m.read(kShard2).size(), '\0')); }, R"(
DIR/model-00002-of-00003.safetensors: the header length is 0: the file starts with zeros, as one whose space was reserved but never filled
  what to do: download this file again)"},

    {"ShardIsAGitLfsPointer", Base::sharded,
     [](const ModelCopy& m) { m.write(kShard2, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5368709120\n"); },
     R"(
DIR/model-00002-of-00003.safetensors: expected a safetensors file, found a Git LFS pointer: the file's content was not downloaded
  what to do: run `git lfs pull` in that folder, or download this file again)"},

    {"ShardIsAWebPage", Base::sharded,
     [](const ModelCopy& m) { m.write(kShard2, "<!DOCTYPE html>\n<html><head><title>Log in</title></head></html>\n"); }, R"(
DIR/model-00002-of-00003.safetensors: expected a safetensors file, found a web page: the download was answered with an error or a login page
  what to do: download this file again)"},

    {"ShardIsAJsonAnswer", Base::sharded,
     [](const ModelCopy& m) { m.write(kShard2, R"({"error":"Access to model is restricted. You must be authenticated."})"); }, R"(
DIR/model-00002-of-00003.safetensors: expected a header of at most 100000000 bytes, found a length of 2482168881970750075: not a safetensors file, or damaged
  what to do: download this file again)"},

    {"ShardIsGguf", Base::sharded, [](const ModelCopy& m) { m.write(kShard2, "GGUF\x03" + std::string(100, '\0')); }, R"(
DIR/model-00002-of-00003.safetensors: expected a safetensors file, found a GGUF file
  what to do: download this file again)"},

    {"ShardsSwapped", Base::sharded,
     [](const ModelCopy& m) {
       m.move(kShard1, "x");
       m.move(kShard3, kShard1);
       m.move("x", kShard3);
     },
     R"(
DIR/model.safetensors.index.json: tensor 'model.norm.weight': expected in model-00003-of-00003.safetensors, found in model-00001-of-00003.safetensors
  what to do: index and files are from different versions of the model: download both again)"},

    {"ShardLacksATensor", Base::sharded, [](const ModelCopy& m) { m.drop_tensor(kShard3, kNorm); }, R"(
DIR/model.safetensors.index.json: 1 tensors of the index are not in the files named: 'model.norm.weight' (model-00003-of-00003.safetensors)
  what to do: index and files are from different versions of the model: download both again)"},

    {"TensorInAnotherShard", Base::sharded, [](const ModelCopy& m) { m.move_tensor(kShard3, kShard2, kNorm); }, R"(
DIR/model.safetensors.index.json: tensor 'model.norm.weight': expected in model-00003-of-00003.safetensors, found in model-00002-of-00003.safetensors
  what to do: index and files are from different versions of the model: download both again)"},

    {"TensorInTwoShards", Base::sharded, [](const ModelCopy& m) { m.put_tensor(kShard1, kNorm, DType::bf16, {64}); }, R"(
DIR: tensor 'model.norm.weight' is in two files: model-00001-of-00003.safetensors and model-00003-of-00003.safetensors
  what to do: remove the file that does not belong to this model, or download the model again)"},

    {"IndexIsNotJson", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, "weight_map:\n  a: b\n"); }, R"(
DIR/model.safetensors.index.json: line 1, column 1: syntax error
  what to do: this is not valid JSON: download or correct it)"},

    {"IndexTruncated", Base::sharded, [](const ModelCopy& m) { m.resize(kIndex, -20); }, R"(
DIR/model.safetensors.index.json: line 367, column 47: incomplete JSON
  what to do: this is not valid JSON: download or correct it)"},

    {"IndexEmpty", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, ""); }, R"(
DIR/model.safetensors.index.json: expected JSON, found nothing
  what to do: download or write the file again)"},

    {"IndexIsAGitLfsPointer", Base::sharded,
     [](const ModelCopy& m) { m.write(kIndex, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 65343\n"); }, R"(
DIR/model.safetensors.index.json: expected JSON, found a Git LFS pointer: the file's content was not downloaded
  what to do: run `git lfs pull` in that folder)"},

    {"IndexWithoutWeightMap", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, R"({"metadata": {"total_size": 1}})"); }, R"(
DIR/model.safetensors.index.json: field 'weight_map': missing
  what to do: add the field, or download the file again)"},

    {"IndexWithAnEmptyWeightMap", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, R"({"weight_map": {}})"); }, R"(
DIR/model.safetensors.index.json: field 'weight_map': expected at least one tensor, found none
  what to do: download this file again)"},

    {"IndexIsAList", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, R"(["model.norm.weight"])"); }, R"(
DIR/model.safetensors.index.json: expected an object, found an array of 1
  what to do: correct the file, or download it again)"},

    {"WeightMapIsAList", Base::sharded, [](const ModelCopy& m) { m.write(kIndex, R"({"weight_map": ["model.norm.weight"]})"); }, R"(
DIR/model.safetensors.index.json: field 'weight_map': expected an object, found an array of 1
  what to do: correct the file, or download it again)"},

    {"WeightMapWithANumber", Base::sharded,
     [](const ModelCopy& m) {
       m.replace(kIndex, R"("model.norm.weight": "model-00003-of-00003.safetensors")", R"("model.norm.weight": 3)");
     },
     R"(
DIR/model.safetensors.index.json: field 'weight_map.model.norm.weight': expected a string, found the number 3
  what to do: correct the file, or download it again)"},

    {"WeightMapListsATensorTwice", Base::sharded,
     [](const ModelCopy& m) {
       m.replace(kIndex, R"("model.norm.weight": )", R"("model.norm.weight": "model-00001-of-00003.safetensors", "model.norm.weight": )");
     },
     R"(
DIR/model.safetensors.index.json: line 367, column 80: the key "model.norm.weight" occurs twice in one object
  what to do: remove one of the two)"},

    {"WeightMapLeavesTheFolder", Base::sharded,
     [](const ModelCopy& m) {
       m.replace(kIndex, R"("model.norm.weight": "model-00003-of-00003.safetensors")", R"("model.norm.weight": "../x.safetensors")");
     },
     R"(
DIR/model.safetensors.index.json: field 'weight_map.model.norm.weight': expected the name of a file in the same folder, found the string "../x.safetensors"
  what to do: correct the file, or download it again)"},

    {"WeightMapWithAnAbsolutePath", Base::sharded,
     [](const ModelCopy& m) {
       m.replace(kIndex, R"("model.norm.weight": "model-00003-of-00003.safetensors")", R"("model.norm.weight": "/etc/passwd")");
     },
     R"(
DIR/model.safetensors.index.json: field 'weight_map.model.norm.weight': expected the name of a file in the same folder, found the string "/etc/passwd"
  what to do: correct the file, or download it again)"},
};

}  // namespace

std::span<const Case> folder_cases() { return kCases; }

}  // namespace reckoner::malformed
