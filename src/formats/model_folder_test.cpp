#include "formats/model_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/scratch_folder.h"

namespace reckoner {
namespace {

// Points the Hugging Face cache at a folder for the length of a test.
class Cache {
 public:
  explicit Cache(const std::filesystem::path& folder) {
    ::setenv("HF_HUB_CACHE", folder.c_str(), 1);
    ::setenv("HF_HOME", (folder / "home").c_str(), 1);
    home_ = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
    ::unsetenv("HOME");
  }
  ~Cache() {
    ::unsetenv("HF_HUB_CACHE");
    ::unsetenv("HF_HOME");
    ::setenv("HOME", home_.c_str(), 1);
  }

 private:
  std::string home_;
};

std::string resolve(const ScratchFolder& scratch, std::string_view model) {
  const Result<std::filesystem::path> folder = resolve_model(model);
  return scratch.shorten(folder ? folder->string() : folder.error().message());
}

TEST(ModelFolder, FolderIsTakenAsItIs) {
  const ScratchFolder scratch;
  EXPECT_EQ(resolve(scratch, "models/pocket"), "models/pocket");
  EXPECT_EQ(resolve(scratch, "models/pocket/config.json"),
            "models/pocket/config.json: expected a model folder, found a file\n"
            "  what to do: give the folder that holds config.json and the safetensors files");
  EXPECT_EQ(resolve(scratch, "./absent"),
            "./absent: there is no such folder\n  what to do: give a model folder, or a repository name such as zai-org/GLM-5.2-FP8");
  EXPECT_EQ(resolve(scratch, ""),
            "'': there is no such folder\n  what to do: give a model folder, or a repository name such as zai-org/GLM-5.2-FP8");
}

TEST(ModelFolder, RepositoryNamesAreLookedUpInTheCache) {
  const ScratchFolder scratch;
  const Cache cache(scratch.path());
  constexpr const char* kDownload =
      "\n  what to do: download it with `hf download o/n`, or into a folder with `hf download o/n --local-dir FOLDER`";
  EXPECT_EQ(resolve(scratch, "o/n"),
            std::string("o/n: neither a folder nor in the Hugging Face cache; looked for: DIR/models--o--n, DIR/home/hub/models--o--n") +
                kDownload);
  std::filesystem::create_directories(scratch.path() / "models--o--n/snapshots");
  EXPECT_EQ(resolve(scratch, "o/n"), std::string("DIR/models--o--n: the cache has this model's name but no snapshot of it") + kDownload);
  std::filesystem::create_directories(scratch.path() / "models--o--n/snapshots/abc");
  EXPECT_EQ(resolve(scratch, "o/n"), "DIR/models--o--n/snapshots/abc");
  std::filesystem::create_directories(scratch.path() / "models--o--n/snapshots/def");
  EXPECT_EQ(resolve(scratch, "o/n"),
            "DIR/models--o--n/snapshots: 2 snapshots and no refs/main that says which one to use: abc, def\n"
            "  what to do: give the path of one of these folders as the model");
  scratch.write("models--o--n/refs/main", "def\n");
  EXPECT_EQ(resolve(scratch, "o/n"), "DIR/models--o--n/snapshots/def");
  std::filesystem::create_directories(scratch.path() / "home/hub/models--p--q/snapshots/1");
  EXPECT_EQ(resolve(scratch, "p/q"), "DIR/home/hub/models--p--q/snapshots/1");
}

}  // namespace
}  // namespace reckoner
