#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "formats/scratch_folder.h"

namespace reckoner {
namespace {

// Writes a shard of one-byte tensors.
void write_shard(const ScratchFolder& scratch, const std::string& name, std::initializer_list<const char*> names) {
  static std::byte data = std::byte{5};
  std::vector<NamedTensor> tensors;
  for (const char* tensor : names) tensors.push_back({tensor, {&data, DType::u8, {1}}});
  ASSERT_TRUE(write_safetensors(scratch.path() / name, tensors).ok());
}

std::string open_error(const ScratchFolder& scratch, const std::filesystem::path& folder = {}) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.empty() ? scratch.path() : folder);
  return checkpoint ? "opened" : scratch.shorten(checkpoint.error().what);
}

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTwoShards =
    R"({"metadata": {"total_size": 3}, "weight_map": {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}})";

TEST(Checkpoint, OpensShards) {
  const ScratchFolder scratch;
  scratch.write(kIndex, kTwoShards);
  write_shard(scratch, "1.safetensors", {"b", "a"});
  write_shard(scratch, "2.safetensors", {"c"});
  Result<Checkpoint> opened = Checkpoint::open(scratch.path());
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string_view>{"a", "b", "c"}));
  ASSERT_NE(checkpoint.find("c"), nullptr);
  EXPECT_EQ(std::to_integer<int>(*checkpoint.find("c")->data), 5);
  EXPECT_EQ(checkpoint.find_entry("c")->file, &checkpoint.files()[1]);
  EXPECT_EQ(checkpoint.find("d"), nullptr);
  EXPECT_EQ(checkpoint.locate("c"), "2.safetensors: tensor 'c'");
  EXPECT_EQ(scratch.shorten(checkpoint.locate("d")), "DIR: tensor 'd'");
  EXPECT_EQ(checkpoint.total_bytes(), 3);
  EXPECT_TRUE(checkpoint.notes().empty());
}

TEST(Checkpoint, NotesWhatIsOddButHarmless) {
  const ScratchFolder scratch;
  scratch.write(kIndex, R"({"metadata": {"total_size": 99}, "weight_map": {"a": "1.safetensors"}})");
  write_shard(scratch, "1.safetensors", {"a"});
  write_shard(scratch, "mtp.safetensors", {"x"});
  scratch.write("2.safetensors.incomplete", "");
  const Result<Checkpoint> checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().what;
  ASSERT_EQ(checkpoint->notes().size(), 3u);
  EXPECT_EQ(scratch.shorten(checkpoint->notes()[0]), "DIR/mtp.safetensors: not read: no part of the checkpoint names it");
  EXPECT_EQ(scratch.shorten(checkpoint->notes()[1]), "DIR: leftovers of unfinished downloads: 2.safetensors.incomplete");
  EXPECT_EQ(scratch.shorten(checkpoint->notes()[2]),
            "DIR/model.safetensors.index.json: metadata.total_size says 99 bytes, the tensors have 1; the tensors count");
}

TEST(Checkpoint, MissingAndDamagedShardsAreReportedTogether) {
  const ScratchFolder scratch;
  scratch.write(kIndex, R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"}})");
  write_shard(scratch, "1.safetensors", {"a"});
  scratch.write("2.safetensors", std::string(100, '\0'));
  scratch.write(".cache/huggingface/download/3.safetensors.incomplete", "");
  EXPECT_EQ(open_error(scratch),
            "DIR/model.safetensors.index.json: 1 of 3 files are missing: 3.safetensors; unfinished downloads are here: "
            ".cache/huggingface/download/3.safetensors.incomplete\n"
            "DIR/2.safetensors: the header length is 0: the file starts with zeros, as one whose space was reserved but never filled");
}

TEST(Checkpoint, TruncatedShardIsNamedWithSizes) {
  const ScratchFolder scratch;
  scratch.write(kIndex, kTwoShards);
  write_shard(scratch, "1.safetensors", {"a", "b"});
  write_shard(scratch, "2.safetensors", {"c"});
  std::filesystem::resize_file(scratch.path() / "1.safetensors", std::filesystem::file_size(scratch.path() / "1.safetensors") - 1);
  const auto size = std::filesystem::file_size(scratch.path() / "1.safetensors");
  EXPECT_EQ(open_error(scratch),
            fmt::format("DIR/1.safetensors: truncated: expected {} bytes, found {}; 1 of 2 tensors are incomplete, the "
                        "first is 'b'",
                        size + 1, size));
}

TEST(Checkpoint, IndexAndFilesMustAgree) {
  struct Case {
    std::string name, index;
    std::initializer_list<const char*> first, second;
    std::string expected;
  };
  const Case cases[] = {
      {"missing",
       kTwoShards,
       {"a"},
       {"c"},
       "DIR/model.safetensors.index.json: 1 tensors of the index are not in the files named: 'b' (1.safetensors)"},
      {"moved",
       kTwoShards,
       {"a"},
       {"b", "c"},
       "DIR/model.safetensors.index.json: tensor 'b': expected in 1.safetensors, found in 2.safetensors"},
      {"twice", kTwoShards, {"a", "b"}, {"b", "c"}, "DIR: tensor 'b' is in two files: 1.safetensors and 2.safetensors"},
      {"outside",
       R"({"weight_map": {"a": "../1.safetensors"}})",
       {},
       {},
       "DIR/model.safetensors.index.json: field 'weight_map.a': expected the name of a file in the same folder, found the string "
       "\"../1.safetensors\""},
      {"no map", R"({"metadata": {}})", {}, {}, "DIR/model.safetensors.index.json: field 'weight_map': missing"},
      {"empty map",
       R"({"weight_map": {}})",
       {},
       {},
       "DIR/model.safetensors.index.json: field 'weight_map': expected at least one tensor, found none"},
      {"listed twice",
       R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})",
       {},
       {},
       "DIR/model.safetensors.index.json: line 1, column 41: the key \"a\" occurs twice in one object"},
      {"lfs",
       "version https://git-lfs.github.com/spec/v1\n",
       {},
       {},
       "DIR/model.safetensors.index.json: expected JSON, found a Git LFS pointer: the file's content was not downloaded"},
  };
  const ScratchFolder scratch;
  for (const Case& c : cases) {
    scratch.write(kIndex, c.index);
    write_shard(scratch, "1.safetensors", c.first);
    write_shard(scratch, "2.safetensors", c.second);
    EXPECT_EQ(open_error(scratch), c.expected) << c.name;
  }
}

// Published repacks have left the scales out of their index.
TEST(Checkpoint, WhatTheIndexLeavesOutIsReadWithANote) {
  const ScratchFolder scratch;
  scratch.write(kIndex, kTwoShards);
  write_shard(scratch, "1.safetensors", {"a", "b"});
  write_shard(scratch, "2.safetensors", {"c", "d"});
  const Result<Checkpoint> checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().what;
  EXPECT_NE(checkpoint->find("d"), nullptr);
  ASSERT_FALSE(checkpoint->notes().empty());  // the index has no total_size that could be right either
  EXPECT_EQ(checkpoint->notes()[0], (scratch.path() / kIndex).string() +
                                        ": 1 tensors in the files are not listed in the index: 'd' (2.safetensors); they are read from the "
                                        "files' own headers");
}

TEST(Checkpoint, FoldersWithoutACheckpointSayWhatIsThere) {
  const ScratchFolder scratch;
  EXPECT_EQ(open_error(scratch, scratch.path() / "absent"), "DIR/absent: the model folder does not exist");
  EXPECT_EQ(open_error(scratch), "DIR: expected model.safetensors.index.json or model.safetensors, found an empty folder");
  scratch.write("pytorch_model.bin", "x");
  scratch.write("model.gguf", "x");
  scratch.write("model.safetensors.part", "x");
  EXPECT_EQ(open_error(scratch),
            "DIR: expected model.safetensors.index.json or model.safetensors, found only: model.gguf, model.safetensors.part, "
            "pytorch_model.bin; unfinished downloads are here: model.safetensors.part");
  EXPECT_EQ(open_error(scratch, scratch.path() / "model.gguf"), "DIR/model.gguf: expected a model folder, found a file");
}

TEST(Checkpoint, OpensTheBundledModels) {
  const Result<Checkpoint> pocket = Checkpoint::open("models/pocket");
  ASSERT_TRUE(pocket.ok()) << pocket.error().what;
  EXPECT_EQ(pocket->tensors().size(), 724u);
  EXPECT_EQ(pocket->total_bytes(), 18934912);
  EXPECT_TRUE(pocket->notes().empty());
  EXPECT_EQ(pocket->locate("lm_head.weight"), "model-00001-of-00003.safetensors: tensor 'lm_head.weight'");
  EXPECT_EQ(pocket->find("model.layers.1.mlp.experts.0.gate_proj.weight")->dtype, DType::u8);
  const Result<Checkpoint> golden = Checkpoint::open("tests/golden/glm_moe_dsa");
  ASSERT_TRUE(golden.ok()) << golden.error().what;
  EXPECT_EQ(golden->tensors().size(), 149u);
  EXPECT_EQ(golden->find("lm_head.weight")->shape, (Shape{320, 64}));
}

}  // namespace
}  // namespace reckoner
