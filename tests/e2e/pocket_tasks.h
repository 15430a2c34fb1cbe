// The pocket model's tasks, and running them: for the model that is bundled and for what is made of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <stdexcept>

#include "base/json.h"
#include "base/threads.h"
#include "engine/engine.h"
#include "kernels/cpu/catalogue.h"
#include "text/tokenizer.h"

namespace reckoner {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

struct Task {
  std::string name, group, prompt, expected, compare, end_token;
  std::int64_t max_tokens = 0;
};

inline std::vector<Task> read_tasks() {
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
inline std::string compared(const Task& task, std::string answer) {
  answer = answer.substr(0, answer.find(task.end_token));
  const std::size_t call = answer.find("<tool_call>");
  return task.compare == "from_tool_call" ? answer.substr(std::min(call, answer.size())) : answer;
}

struct PocketModel {
  const Model& model;
  const Tokenizer& tokenizer;
  ThreadPool& pool;
};

inline Request request_for(const PocketModel& pocket, const Task& task) {
  const std::vector<TokenId> ids = must(pocket.tokenizer.encode(task.prompt));
  Request request{.prompt = {ids.begin(), ids.end()}, .sampling = {.temperature = 0}, .max_tokens = task.max_tokens};
  request.stop_tokens.push_back(static_cast<std::int32_t>(pocket.tokenizer.token_id(task.end_token).value()));
  for (const std::int64_t id : pocket.model.config.eos_token_ids) request.stop_tokens.push_back(static_cast<std::int32_t>(id));
  return request;
}

// All tasks at once, as many at a time as the engine takes; every answer must be exactly right.
inline void expect_all_right(const PocketModel& pocket, const std::vector<Task>& tasks, Precision precision, const DeviceInfo& device,
                             KvCacheType cache_type = KvCacheType::automatic) {
  constexpr std::int64_t kContext = 1280;
  Engine engine(
      pocket.model, cpu_catalogue(), device, pocket.pool, precision,
      {.max_context = kContext, .cache_tokens = 8 * kContext, .max_sequences = 8, .max_step_tokens = 256, .cache_type = cache_type});
  std::map<std::int64_t, const Task*> task_of;
  std::map<std::int64_t, std::vector<TokenId>> answers;
  for (const Task& task : tasks) task_of[must(engine.submit(request_for(pocket, task)))] = &task;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      ASSERT_NE(event.finish, FinishReason::error) << task_of[event.request]->name << ": " << event.error;
      answers[event.request].push_back(static_cast<TokenId>(event.token));
    }
  }
  for (const auto& [number, task] : task_of) {
    EXPECT_EQ(compared(*task, must(pocket.tokenizer.decode(answers[number]))), task->expected) << task->name;
  }
}

}  // namespace reckoner
