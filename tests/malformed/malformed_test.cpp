// Malformed model folders: each is refused with a message that names the file and says what was expected, what was found and what to do;
// at once, and with nothing written into the folder.
#include <gtest/gtest.h>

#include <ctime>

#include "base/threads.h"
#include "cases.h"
#include "model/loader.h"
#include "text/tokenizer.h"

namespace reckoner::malformed {
namespace {

// What a program does before the first request.
Status open_all(const std::filesystem::path& folder) {
  const std::unique_ptr<Model> model = TRY(open_model(folder));
  ThreadPool pool(1);
  TRY(read_weights(*model, pool, {}));
  static_cast<void>(TRY(Tokenizer::load(folder)));
  return {};
}

double cpu_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, IsRefusedWithItsMessage) {
  const Case& c = GetParam();
  const ModelCopy model(c.base);
  c.damage(model);
  const std::vector<std::string> before = model.listing();
  const double start = cpu_seconds();
  const Status status = open_all(model.path());
  // Milliseconds in fact; the limit leaves room for sanitisers.
  EXPECT_LT(cpu_seconds() - start, 2.0);
  EXPECT_EQ(model.listing(), before) << "something was written into the model folder";
  ASSERT_FALSE(status.ok()) << "the folder was accepted";
  EXPECT_EQ("\n" + model.shorten(status.error().message()), c.message);
  EXPECT_NE(status.error().remedy, "") << "it does not say what to do";
}

INSTANTIATE_TEST_SUITE_P(Folder, Malformed, testing::ValuesIn(folder_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Header, Malformed, testing::ValuesIn(header_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Tensors, Malformed, testing::ValuesIn(tensor_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Config, Malformed, testing::ValuesIn(config_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Tokenizer, Malformed, testing::ValuesIn(tokenizer_cases()), name_of);

TEST(WholeModel, OpensUntouched) {
  for (const Base base : {Base::bf16, Base::nvfp4, Base::sharded, Base::pocket}) {
    const ModelCopy model(base);
    const std::vector<std::string> before = model.listing();
    const Status status = open_all(model.path());
    EXPECT_TRUE(status.ok()) << status.error().message();
    EXPECT_EQ(model.listing(), before);
  }
}

}  // namespace
}  // namespace reckoner::malformed
