// What the tests of the program share: its JSON, its errors, models with single files replaced.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "program.h"

namespace reckoner {

namespace fs = std::filesystem;

inline constexpr const char* kModel = "models/pocket";
inline constexpr const char* kLantern = "light in a transparent protective case";

inline JsonDocument parsed(const std::string& text) {
  Result<JsonDocument> document = parse_json(text, "stdout");
  if (!document) throw std::runtime_error(document.error().message() + "\n" + text);
  return *document;
}

// The member at a path of keys; throws when there is none.
inline JsonNode at(const JsonDocument& document, const std::vector<std::string>& path) {
  JsonNode node = document.root();
  for (const std::string& key : path) {
    Result<JsonNode> member = node.required(key);
    if (!member) throw std::runtime_error(member.error().message());
    node = *member;
  }
  return node;
}
inline std::string text_at(const JsonDocument& document, const std::vector<std::string>& path) {
  return at(document, path).as_string().value();
}
// By value: a range-based for keeps no temporary Result alive.
inline std::vector<JsonNode> list_at(const JsonDocument& document, const std::vector<std::string>& path) {
  return at(document, path).as_array().value();
}
inline double number_at(const JsonDocument& document, const std::vector<std::string>& path) {
  return at(document, path).as_float().value();
}

// `run` on the pocket model without thinking.
inline std::vector<std::string> ask(std::vector<std::string> more) {
  more.insert(more.begin(), {"run", kModel, "--no-think"});
  return more;
}

inline void expect_error(const std::vector<std::string>& arguments, int status, const std::vector<std::string>& parts) {
  const ProgramRun run = run_program(arguments);
  EXPECT_EQ(run.status, status) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("reckoner: error: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("\n  what to do: "), std::string::npos) << run.err;
  for (const std::string& part : parts) EXPECT_NE(run.err.find(part), std::string::npos) << "wanted '" << part << "' in: " << run.err;
}

// A folder of its own for one test, removed with it.
class Scratch {
 public:
  Scratch() : path_(fs::temp_directory_path() / ("reckoner_e2e_" + std::to_string(getpid()))) { fs::create_directories(path_); }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  // The pocket model, with links for files, so that single ones can be replaced.
  std::string copy_of_model() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(kModel)) {
      fs::create_symlink(fs::absolute(entry.path()), path_ / entry.path().filename());
    }
    return path_.string();
  }
  void replace(const std::string& name, const std::string& text) const {
    fs::remove(path_ / name);
    write(name, text);
  }

 private:
  fs::path path_;
};

}  // namespace reckoner
