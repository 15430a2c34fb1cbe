#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/scratch_folder.h"

namespace reckoner {
namespace {

// A file from a header's text and data; `length` overrides the length in front.
std::string make_file(const std::string& header, std::size_t data_bytes, std::uint64_t length = 0) {
  if (length == 0) length = header.size();
  std::string file;
  for (int byte = 0; byte < 8; ++byte) file += static_cast<char>(length >> (8 * byte) & 0xff);
  return file + header + std::string(data_bytes, '\x01');
}

Result<SafetensorsContent> parse(std::string_view file) { return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors"); }

TEST(Safetensors, ReadsHandMadeBytes) {
  // 8 bytes of length (0x88 = 136), the header, then b = 1 byte and a = two little-endian floats 1.0 and -2.0, unaligned.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  ASSERT_EQ(header.size(), 136u);
  const std::string file = std::string("\x88\0\0\0\0\0\0\0", 8) + header + std::string("\x07\0\0\x80\x3f\0\0\0\xc0", 9);
  const Result<SafetensorsContent> content = parse(file);
  ASSERT_TRUE(content.ok()) << content.error().what;
  ASSERT_EQ(content->tensors.size(), 2u);
  const TensorEntry& b = content->tensors[0];
  const TensorEntry& a = content->tensors[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.tensor.dtype, DType::u8);
  EXPECT_EQ(b.tensor.shape, Shape{});
  EXPECT_EQ(b.file_offset, 144);
  EXPECT_EQ(std::to_integer<int>(*b.tensor.data), 7);
  EXPECT_EQ(a.tensor.shape, Shape{2});
  EXPECT_EQ(a.file_offset, 145);
  float values[2];
  std::memcpy(values, a.tensor.data, sizeof(values));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(content->metadata, (SafetensorsMetadata{{"format", "pt"}}));
}

TEST(Safetensors, AcceptsEmptyTensorsAndPaddedHeaders) {
  const Result<SafetensorsContent> content = parse(make_file(
      R"({"a":{"dtype":"F32","shape":[0,4],"data_offsets":[2,2]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}    )",
      2));
  ASSERT_TRUE(content.ok()) << content.error().what;
  EXPECT_EQ(content->tensors.size(), 3u);
  EXPECT_TRUE(parse(make_file("{}", 0)).ok());
}

TEST(Safetensors, EachKindOfDamageHasItsMessage) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";  // 54 bytes
  struct Case {
    std::string name, file, expected;
  };
  const Case cases[] = {
      {"short", "abc", "m.safetensors: truncated: expected at least 8 bytes, found 3"},
      {"git lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 5\n",
       "m.safetensors: expected a safetensors file, found a Git LFS pointer: the file's content was not downloaded"},
      {"html", "<!DOCTYPE html><html>",
       "m.safetensors: expected a safetensors file, found a web page: the download was answered with an error or a login page"},
      {"gguf", std::string("GGUF\x03\0\0\0", 8), "m.safetensors: expected a safetensors file, found a GGUF file"},
      {"zip", "PK\x03\x04rest of it", "m.safetensors: expected a safetensors file, found a zip archive (a PyTorch .bin checkpoint?)"},
      {"zeros", std::string(64, '\0'),
       "m.safetensors: the header length is 0: the file starts with zeros, as one whose space was reserved but never filled"},
      {"noise", "some other text",
       "m.safetensors: expected a header of at most 100000000 bytes, found a length of 7526763062174248819: not a safetensors file, or "
       "damaged"},
      {"cut in header", make_file(one, 0).substr(0, 40),
       "m.safetensors: truncated inside the header: expected 54 bytes of header after the first 8, found 32"},
      {"no object", make_file("[]", 0),
       "m.safetensors: header: expected a JSON object, found something else: not a safetensors file, or damaged"},
      {"bad json", make_file("{\"a\":}", 0), "m.safetensors: header: line 1, column 6: syntax error"},
      {"zeros in header", make_file(one.substr(0, 30) + std::string(24, '\0'), 8),
       "m.safetensors: header: line 1, column 31: syntax error"},
      {"truncated", make_file(one, 4),
       "m.safetensors: truncated: expected 70 bytes, found 66; 1 of 1 tensors are incomplete, the first is 'a'"},
      {"padded", make_file(one, 16),
       "m.safetensors: padded: expected 70 bytes, found 78; 8 bytes after the last tensor belong to no tensor"},
      {"no dtype", make_file(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'dtype': missing"},
      {"bad dtype", make_file(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'dtype': the string \"F4\" is not a supported dtype"},
      {"no shape", make_file(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'shape': missing"},
      {"negative", make_file(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'shape[0]': expected an integer from 0 to 9223372036854775807, found the number -2"},
      {"rank 5", make_file(R"({"a":{"dtype":"F32","shape":[1,1,1,1,2],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'shape': expected at most 4 dimensions, found 5"},
      {"overflow", make_file(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'shape': the tensor's size overflows 64 bits"},
      {"overflow behind zero", make_file(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0),
       "m.safetensors: header: tensor 'a': field 'shape': the tensor's size overflows 64 bits"},
      {"three offsets", make_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8),
       "m.safetensors: header: tensor 'a': field 'data_offsets': expected two offsets, [begin, end], found an array of 3"},
      {"reversed", make_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
       "m.safetensors: header: tensor 'a': field 'data_offsets': expected begin <= end, found [8, 0]"},
      {"wrong size", make_file(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
       "m.safetensors: header: tensor 'a': field 'data_offsets': expected 12 bytes (F32 [3]), found 8 bytes ([0, 8])"},
      {"overlap",
       make_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
       "m.safetensors: tensors 'a' and 'b' overlap at data offset 2"},
      {"hole",
       make_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})", 10),
       "m.safetensors: 2 bytes before tensor 'b' belong to no tensor: expected its data at offset 4, found 6"},
      {"name twice",
       make_file(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})", 2),
       "m.safetensors: header: line 1, column 55: the key \"a\" occurs twice in one object"},
      {"tensor is no object", make_file(R"({"a":3})", 0), "m.safetensors: header: tensor 'a': expected an object, found the number 3"},
      {"metadata", make_file(R"({"__metadata__":{"n":3}})", 0),
       "m.safetensors: header: field '__metadata__.n': expected a string, found the number 3"},
  };
  for (const Case& c : cases) {
    const Result<SafetensorsContent> content = parse(c.file);
    EXPECT_EQ(content ? "parsed" : content.error().what, c.expected) << c.name;
  }
}

// A header is worth reading even when the data behind it is not all there.
TEST(Safetensors, ReadsTheHeaderOfADamagedFile) {
  const std::string whole =
      make_file(R"({"b":{"dtype":"U8","shape":[6],"data_offsets":[4,10]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 10);
  for (const int change : {0, -1, -8, 3}) {
    std::string file = whole;
    file.resize(static_cast<std::size_t>(static_cast<int>(whole.size()) + change));
    const Result<SafetensorsHeader> header = parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())), "m");
    ASSERT_TRUE(header.ok()) << header.error().what;
    EXPECT_EQ(header->layout.ok(), change == 0);
    EXPECT_EQ(header->file_bytes, static_cast<std::int64_t>(file.size()));
    EXPECT_EQ(header->expected_bytes, static_cast<std::int64_t>(whole.size()));
    ASSERT_EQ(header->content.tensors.size(), 2u);
    EXPECT_EQ(header->content.tensors[1].name, "b");
    EXPECT_EQ(header->content.tensors[1].file_offset, header->data_offset + 4);
    EXPECT_TRUE(header->content.tensors[1].tensor.empty());
  }
  // Offsets beyond what any file can have.
  const std::string absurd = make_file(R"({"a":{"dtype":"U8","shape":[9223372036854775800],"data_offsets":[0,9223372036854775800]}})", 1);
  EXPECT_FALSE(parse_safetensors_header(std::as_bytes(std::span(absurd.data(), absurd.size())), "m").ok());
}

TEST(Safetensors, WritesWhatItReads) {
  const ScratchFolder scratch;
  float values[3] = {1, 2, 3};
  std::uint8_t byte = 9;
  const NamedTensor tensors[] = {{"x\"y", {reinterpret_cast<std::byte*>(&byte), DType::u8, {}}},
                                 {"f", {reinterpret_cast<std::byte*>(values), DType::f32, {3, 1}}}};
  const std::filesystem::path path = scratch.path() / "w.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().what;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_NE(file->find("f"), nullptr);
  EXPECT_EQ(file->find("f")->tensor.shape, (Shape{3, 1}));
  EXPECT_EQ(std::memcmp(file->find("f")->tensor.data, values, sizeof(values)), 0);
  EXPECT_EQ(std::to_integer<int>(*file->find("x\"y")->tensor.data), 9);
  EXPECT_EQ(file->find("absent"), nullptr);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);  // no temporary file stays
}

TEST(Safetensors, WriterErrorsAreNamed) {
  const ScratchFolder scratch;
  const NamedTensor twice[] = {{"a", {nullptr, DType::u8, {0}}}, {"a", {nullptr, DType::u8, {0}}}};
  EXPECT_EQ(write_safetensors("x", twice).error().what, "x: cannot write two tensors of the name 'a'");
  const NamedTensor reserved[] = {{"__metadata__", {nullptr, DType::u8, {0}}}};
  EXPECT_EQ(write_safetensors("x", reserved).error().what, "x: a tensor cannot be called '__metadata__'");
  const std::filesystem::path path = scratch.path() / "absent" / "x";
  EXPECT_EQ(scratch.shorten(write_safetensors(path, {}).error().what), "DIR/absent/x: cannot write the file: writing failed");
}

TEST(Safetensors, ReadsTheReferenceFiles) {
  const Result<SafetensorsFile> file = SafetensorsFile::open("tests/golden/glm_moe_dsa/reference.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().what;
  EXPECT_EQ(file->tensors().size(), 7u);
  EXPECT_EQ(file->metadata().at("case"), "glm_moe_dsa");
  ASSERT_NE(file->find("hidden.0"), nullptr);
  EXPECT_EQ(file->find("hidden.0")->tensor.shape, (Shape{96, 64}));
}

}  // namespace
}  // namespace reckoner
