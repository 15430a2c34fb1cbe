// The pocket model answers from memory: a mistake anywhere in the arithmetic, the text or the engine turns into a wrong word.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstring>
#include <map>
#include <memory>

#include "base/json.h"
#include "formats/safetensors.h"
#include "pocket_tasks.h"

namespace reckoner {
namespace {

constexpr const char* kModel = "models/pocket";

class PocketTasks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model = must(open_model(kModel)).release();
    pool = new ThreadPool(2);
    const Status read = read_weights(*model, *pool, {});
    ASSERT_TRUE(read.ok()) << read.error().message();
    tokenizer = new Tokenizer(must(Tokenizer::load(kModel)));
  }
  static void TearDownTestSuite() {
    delete tokenizer;
    delete pool;
    delete model;
  }

  static void expect_all_right(const std::vector<Task>& tasks, Precision precision, const DeviceInfo& device,
                               KvCacheType cache_type = KvCacheType::automatic) {
    reckoner::expect_all_right({*model, *tokenizer, *pool}, tasks, precision, device, cache_type);
  }

  static Model* model;
  static ThreadPool* pool;
  static Tokenizer* tokenizer;
};
Model* PocketTasks::model = nullptr;
ThreadPool* PocketTasks::pool = nullptr;
Tokenizer* PocketTasks::tokenizer = nullptr;

TEST_F(PocketTasks, ThereAreAllKinds) {
  std::map<std::string, int> groups;
  for (const Task& task : read_tasks()) ++groups[task.group];
  EXPECT_EQ(groups.size(), 6u);
  for (const auto& [group, count] : groups) EXPECT_GE(count, 5) << group;
}

TEST_F(PocketTasks, ExactAnswersAllOfThem) { expect_all_right(read_tasks(), Precision::exact, detect_cpu()); }

TEST_F(PocketTasks, FastAnswersAllOfThem) { expect_all_right(read_tasks(), Precision::fast, detect_cpu()); }

TEST_F(PocketTasks, AnFp8CacheAnswersAllOfThem) { expect_all_right(read_tasks(), Precision::fast, detect_cpu(), KvCacheType::fp8); }

// The references are slow: the first of each kind, the long ones left out.
TEST_F(PocketTasks, ScalarKernelsAnswerSomeOfThem) {
  std::vector<Task> some;
  for (const Task& task : read_tasks()) {
    if (task.name.ends_with("_1") && task.prompt.size() < 2000) some.push_back(task);
  }
  ASSERT_GE(some.size(), 3u);
  expect_all_right(some, Precision::exact, limited_to(detect_cpu(), "scalar"));
}

// A member of a JSON object as JSON text; empty when it is absent or null.
std::string json_text(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> member = must(object.optional(key));
  return member ? boost::json::serialize(member->value()) : "";
}

// The template renders what transformers rendered, and the tokenizer finds the ids that transformers found.
TEST_F(PocketTasks, PromptsAreThoseOfTheGoldenFile) {
  const SafetensorsFile golden = must(SafetensorsFile::open("tests/data/pocket-golden.safetensors"));
  ASSERT_EQ(golden.metadata().size(), 4u);
  for (const auto& [name, text] : golden.metadata()) {
    const JsonDocument document = must(parse_json(text, name));
    const std::string expected = must(must(document.root().required("text")).as_string());
    const bool thinks = expected.ends_with("<think>");
    const std::string prompt = must(tokenizer->apply_chat_template({.messages_json = json_text(document.root(), "messages"),
                                                                    .tools_json = json_text(document.root(), "tools"),
                                                                    .kwargs_json = thinks ? "" : R"({"enable_thinking": false})"}));
    EXPECT_EQ(prompt, expected) << name;
    const TensorEntry* ids = golden.find(name + ".input_ids");
    ASSERT_NE(ids, nullptr) << name;
    const std::vector<TokenId> found = must(tokenizer->encode(prompt));
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), ids->tensor.dim(0)) << name;
    EXPECT_EQ(std::memcmp(found.data(), ids->tensor.data, found.size() * sizeof(TokenId)), 0) << name;
  }
}

}  // namespace
}  // namespace reckoner
