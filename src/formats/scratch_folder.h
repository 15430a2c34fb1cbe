// ScratchFolder: an empty folder for one test, removed at its end. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace reckoner {

class ScratchFolder {
 public:
  ScratchFolder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) / (std::string("reckoner_") + test->test_suite_name() + "_" + test->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  // A message with this folder's path replaced by "DIR", so that tests can assert it whole.
  std::string shorten(std::string message) const {
    for (std::size_t at = message.find(path_.string()); at != std::string::npos; at = message.find(path_.string()))
      message.replace(at, path_.string().size(), "DIR");
    return message;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace reckoner
