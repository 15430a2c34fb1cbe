// The pocket model answers from memory: a mistake anywhere in the arithmetic, the text or the engine turns into a wrong word.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "base/json.h"
#include "base/threads.h"
#include "engine/engine.h"
#include "formats/safetensors.h"
#include "kernels/cpu/catalogue.h"
#include "text/tokenizer.h"

namespace reckoner {
namespace {

constexpr const char* kModel = "models/pocket";

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

struct Task {
  std::string name, group, prompt, expected, compare, end_token;
  std::int64_t max_tokens = 0;
};

std::vector<Task> read_tasks() {
  const JsonDocument document = must(read_json_file("tests/data/pocket-tasks.json"));
  std::vector<Task> tasks;
  for (const JsonNode& node : must(must(document.root().required("tasks")).as_array())) {
    const auto text = [&](const char* key) { return must(must(node.required(key)).as_string()); };
    tasks.push_back({.name = text("name"),
                     .group = text("group"),
                     .prompt = text("prompt"),
                     .expected = text("expected"),
                     .compare = text("compare"),
                     .end_token = text("end_token"),
                     .max_tokens = must(must(node.required("max_tokens")).as_int64(1, 1000))});
  }
  return tasks;
}

// The part of an answer that the task looks at.
std::string compared(const Task& task, std::string answer) {
  answer = answer.substr(0, answer.find(task.end_token));
  const std::size_t call = answer.find("<tool_call>");
  return task.compare == "from_tool_call" ? answer.substr(std::min(call, answer.size())) : answer;
}

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

  static Request request_for(const Task& task) {
    const std::vector<TokenId> ids = must(tokenizer->encode(task.prompt));
    Request request{.prompt = {ids.begin(), ids.end()}, .sampling = {.temperature = 0}, .max_tokens = task.max_tokens};
    request.stop_tokens.push_back(static_cast<std::int32_t>(tokenizer->token_id(task.end_token).value()));
    for (const std::int64_t id : model->config.eos_token_ids) request.stop_tokens.push_back(static_cast<std::int32_t>(id));
    return request;
  }

  // All tasks at once, as many at a time as the engine takes; every answer must be exactly right.
  static void expect_all_right(const std::vector<Task>& tasks, Precision precision, const DeviceInfo& device,
                               KvCacheType cache_type = KvCacheType::automatic) {
    constexpr std::int64_t kContext = 1280;
    Engine engine(
        *model, cpu_catalogue(), device, *pool, precision,
        {.max_context = kContext, .cache_tokens = 8 * kContext, .max_sequences = 8, .max_step_tokens = 256, .cache_type = cache_type});
    std::map<std::int64_t, const Task*> task_of;
    std::map<std::int64_t, std::vector<TokenId>> answers;
    for (const Task& task : tasks) task_of[must(engine.submit(request_for(task)))] = &task;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        ASSERT_NE(event.finish, FinishReason::error) << task_of[event.request]->name << ": " << event.error;
        answers[event.request].push_back(static_cast<TokenId>(event.token));
      }
    }
    for (const auto& [number, task] : task_of) {
      EXPECT_EQ(compared(*task, must(tokenizer->decode(answers[number]))), task->expected) << task->name;
    }
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
