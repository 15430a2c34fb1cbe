// The inside of a safetensors file: its header's length, the header, and where it says that tensors lie.
#include "cases.h"

namespace reckoner::malformed {
namespace {

// As the header of the BF16 model has it; its data is the last of the file.
constexpr const char* kNormEntry = R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[873696,873824]})";

const Case kCases[] = {
    {"LengthTooLong", Base::bf16, [](const ModelCopy& m) { m.set_header_length(kFile, 20000); }, R"(
DIR/model.safetensors: header: line 1, column 16377: extra data
  what to do: download this file again)"},

    {"LengthTooShort", Base::bf16, [](const ModelCopy& m) { m.set_header_length(kFile, 100); }, R"(
DIR/model.safetensors: header: line 1, column 101: incomplete JSON
  what to do: download this file again)"},

    {"LengthBeyondTheFile", Base::bf16, [](const ModelCopy& m) { m.set_header_length(kFile, 50'000'000); }, R"(
DIR/model.safetensors: truncated inside the header: expected 50000000 bytes of header after the first 8, found 890200
  what to do: download this file again)"},

    {"LengthHuge", Base::bf16, [](const ModelCopy& m) { m.set_header_length(kFile, 0xffff'ffff'ffff'fff0); }, R"(
DIR/model.safetensors: expected a header of at most 100000000 bytes, found a length of 18446744073709551600: not a safetensors file, or damaged
  what to do: download this file again)"},

    {"FileOfSevenBytes", Base::bf16, [](const ModelCopy& m) { m.write(kFile, "\x10\x40\x01\x01\x01\x01\x01"); }, R"(
DIR/model.safetensors: truncated: expected at least 8 bytes, found 7
  what to do: download this file again)"},

    {"NotAnObject", Base::bf16, [](const ModelCopy& m) { m.set_header(kFile, "[1, 2, 3]"); }, R"(
DIR/model.safetensors: header: expected a JSON object, found something else: not a safetensors file, or damaged
  what to do: download this file again)"},

    {"NotJson", Base::bf16, [](const ModelCopy& m) { m.set_header(kFile, "{'model.norm.weight': None}"); }, R"(
DIR/model.safetensors: header: line 1, column 2: syntax error
  what to do: download this file again)"},

    {"NoTensors", Base::bf16, [](const ModelCopy& m) { m.set_header(kFile, "{}"); }, R"(
DIR/model.safetensors: padded: expected 10 bytes, found 873834; 873824 bytes after the last tensor belong to no tensor
  what to do: download this file again)"},

    {"NotUtf8", Base::bf16, [](const ModelCopy& m) { m.replace_in_header(kFile, "model.norm.weight", "model.\xff\xfe.weight"); }, R"(
DIR/model.safetensors: header: line 1, column 16296: syntax error
  what to do: download this file again)"},

    {"NestedTooDeep", Base::bf16,
     [](const ModelCopy& m) { m.set_header(kFile, "{\"a\":" + std::string(10'000, '[') + std::string(10'000, ']') + "}"); }, R"(
DIR/model.safetensors: header: line 1, column 69: too deep
  what to do: download this file again)"},

    {"TensorTwice", Base::bf16,
     [](const ModelCopy& m) { m.replace_in_header(kFile, kNormEntry, std::string(kNormEntry) + "," + kNormEntry); }, R"(
DIR/model.safetensors: header: line 1, column 16388: the key "model.norm.weight" occurs twice in one object
  what to do: download this file again)"},

    {"EntryIsAList", Base::bf16,
     [](const ModelCopy& m) { m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":["BF16",[64],873696,873824])"); }, R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': expected an object, found an array of 4
  what to do: download this file again)"},

    {"MetadataWithANumber", Base::bf16, [](const ModelCopy& m) { m.replace_in_header(kFile, R"("format":"pt")", R"("format":1)"); },
     R"(
DIR/model.safetensors: header: field '__metadata__.format': expected a string, found the number 1
  what to do: download this file again)"},

    {"DtypeUnknown", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"F4","shape":[256],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'dtype': the string "F4" is not a supported dtype
  what to do: use an export of the model in supported dtypes: F32, F16, BF16, F64, F8_E4M3, F8_E5M2, F8_E8M0, I8, U8, I16, U16, I32, U32, I64, U64, BOOL)"},

    {"DtypeMissing", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"shape":[64],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'dtype': missing
  what to do: add the field, or download the file again)"},

    {"ShapeNegative", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[-64],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'shape[0]': expected an integer from 0 to 9223372036854775807, found the number -64
  what to do: download this file again)"},

    {"ShapeOverflows", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry,
                           R"("model.norm.weight":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'shape': the tensor's size overflows 64 bits
  what to do: download this file again)"},

    {"ShapeOverflowsBehindAZero", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry,
                           R"("model.norm.weight":{"dtype":"BF16","shape":[0,4294967296,4294967296],"data_offsets":[873696,873696]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'shape': the tensor's size overflows 64 bits
  what to do: download this file again)"},

    {"ShapeWithAFraction", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[63.5],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'shape[0]': expected an integer from 0 to 9223372036854775807, found the number 63.5
  what to do: download this file again)"},

    {"ShapeOfFiveDimensions", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry,
                           R"("model.norm.weight":{"dtype":"BF16","shape":[1,1,1,1,64],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'shape': expected at most 4 dimensions, found 5
  what to do: download this file again)"},

    {"OffsetsUnlikeShape", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[63],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'data_offsets': expected 126 bytes (BF16 [63]), found 128 bytes ([873696, 873824])
  what to do: download this file again)"},

    {"OffsetsUnlikeDtype", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[873696,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'data_offsets': expected 256 bytes (F32 [64]), found 128 bytes ([873696, 873824])
  what to do: download this file again)"},

    {"OffsetsOutsideTheFile", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[9873696,9873824]})");
     },
     R"(
DIR/model.safetensors: truncated: expected 9890210 bytes, found 890210; 1 of 149 tensors are incomplete, the first is 'model.norm.weight'
  what to do: download this file again)"},

    {"OffsetsNearTheLargestNumber", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry,
                           R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[9223372036854775679,9223372036854775807]})");
     },
     R"(
DIR/model.safetensors: truncated: expected 9223372036854792217 bytes, found 890234; 1 of 149 tensors are incomplete, the first is 'model.norm.weight'
  what to do: download this file again)"},

    {"OffsetsBackwards", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[873824,873696]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'data_offsets': expected begin <= end, found [873824, 873696]
  what to do: download this file again)"},

    {"OffsetsNegative", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[-128,0]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'data_offsets[0]': expected an integer from 0 to 9223372036854775807, found the number -128
  what to do: download this file again)"},

    {"OffsetsOfThree", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[873696,873760,873824]})");
     },
     R"(
DIR/model.safetensors: header: tensor 'model.norm.weight': field 'data_offsets': expected two offsets, [begin, end], found an array of 3
  what to do: download this file again)"},

    {"TensorsOverlap", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[873568,873696]})");
     },
     R"(
DIR/model.safetensors: tensors 'model.layers.3.self_attn.q_b_proj.weight' and 'model.norm.weight' overlap at data offset 873568
  what to do: download this file again)"},

    {"GapBetweenTensors", Base::bf16,
     [](const ModelCopy& m) {
       m.replace_in_header(kFile, kNormEntry, R"("model.norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[873704,873832]})");
       m.resize(kFile, 8);
     },
     R"(
DIR/model.safetensors: 8 bytes before tensor 'model.norm.weight' belong to no tensor: expected its data at offset 873696, found 873704
  what to do: download this file again)"},
};

}  // namespace

std::span<const Case> header_cases() { return kCases; }

}  // namespace reckoner::malformed
