// The child process: what it says is believed, what it does not survive is refused. The children are shell scripts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "diagnose/admission/admission.h"

namespace reckoner::admission {
namespace {

namespace fs = std::filesystem;

const Item kFirst = {.op = "linear", .kernel = "linear.a", .key = {.precision = Precision::fast, .format = QuantFormat::nvfp4}};
const Item kSecond = {.op = "rms_norm", .kernel = "rms_norm.b"};

// A child that says and does what the script says. Of the job it gets as $job.
ChildOptions script(const std::string& text, std::int64_t limit_ms = 20'000) {
  return {.command = {"/bin/sh", "-c", "job=$(cat)\n" + text}, .limit = std::chrono::milliseconds(limit_ms)};
}
// printf of a line.
std::string say(std::string line) {
  line.pop_back();
  return "printf '%s\\n' '" + line + "'\n";
}
std::string passes(const Item& item) { return say(begin_line(item)) + say(outcome_line({.item = item, .passed = true, .worst = 0.25})); }
// Only if the job has the item.
std::string if_asked(const Item& item, const std::string& then) { return "case $job in *" + item.kernel + "*) " + then + " ;; esac\n"; }

TEST(Child, TellsWhatCameOut) {
  const Outcome bad{.item = kSecond, .passed = false, .worst = 7.5, .reason = "error 3 where \"1\" is allowed"};
  const auto found =
      admit_in_child({.items = {kFirst, kSecond}}, script(passes(kFirst) + say(begin_line(kSecond)) + say(outcome_line(bad))));
  ASSERT_TRUE(found.ok()) << found.error().what;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].item, kFirst);
  EXPECT_TRUE((*found)[0].passed);
  EXPECT_EQ((*found)[0].worst, 0.25);
  EXPECT_FALSE((*found)[1].passed);
  EXPECT_EQ((*found)[1].reason, bad.reason);
}

TEST(Child, ACrashRefusesTheKernelAtWorkAndTheRestGoesOn) {
  const auto found =
      admit_in_child({.items = {kFirst, kSecond}},
                     script(if_asked(kFirst, say(begin_line(kFirst)) + "echo 'CHECK failed: x' >&2; kill -ABRT $$") + passes(kSecond)));
  ASSERT_TRUE(found.ok()) << found.error().what;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_FALSE((*found)[0].passed);
  EXPECT_EQ((*found)[0].reason, "crashed (signal 6: Aborted): CHECK failed: x");
  EXPECT_TRUE((*found)[1].passed);
}

TEST(Child, AHangRefusesTheKernelAtWorkAndTheRestGoesOn) {
  const auto found = admit_in_child({.items = {kFirst, kSecond}},
                                    script(if_asked(kFirst, say(begin_line(kFirst)) + "exec sleep 1000") + passes(kSecond), 500));
  ASSERT_TRUE(found.ok()) << found.error().what;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].reason, "did not end within 0.5 s");
  EXPECT_TRUE((*found)[1].passed);
}

TEST(Child, LeavingEarlyRefusesTheKernelAtWork) {
  const auto found = admit_in_child({.items = {kFirst}}, script(say(begin_line(kFirst)) + "exit 7"));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->front().reason, "ended the process with status 7");
}

TEST(Child, OneThatDoesNotBeginIsAnError) {
  for (const ChildOptions& child : {script("echo 'no GPU' >&2; exit 1"), ChildOptions{.command = {"/no/such/program"}}, script("echo {}"),
                                    script("exec sleep 1000", 300), script(passes(kSecond))}) {
    const auto found = admit_in_child({.items = {kFirst}}, child);
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.error().what, "");
  }
  EXPECT_NE(admit_in_child({.items = {kFirst}}, script("echo 'no GPU' >&2; exit 1")).error().what.find("no GPU"), std::string::npos);
}

TEST(Job, ComesBackAsItWas) {
  const Job job{.device = "cuda:3",
                .threads = 5,
                .shapes = {.widths = {6144, 12288}, .hidden = 6144, .top_groups = 4, .cache = DType::f8_e4m3},
                .items = {kFirst, kSecond}};
  const auto back = parse_job(to_json(job));
  ASSERT_TRUE(back.ok()) << back.error().what;
  EXPECT_EQ(back->device, job.device);
  EXPECT_EQ(back->threads, job.threads);
  EXPECT_EQ(back->shapes, job.shapes);
  EXPECT_EQ(back->items, job.items);
}

// --- what passed is remembered ------------------------------------------------------------------------------------

class RememberTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder); }
  fs::path only_file() const { return *fs::directory_iterator(folder); }

  const fs::path folder = fs::temp_directory_path() / ("reckoner_passed_" + std::to_string(getpid()));
  const Identity identity = {.program = "1", .backend = "2", .device = "Fake GPU", .driver = "580"};
};

TEST_F(RememberTest, KeepsWhatPassedAndNothingElse) {
  Passed passed(folder, identity);
  passed.add({.item = kFirst, .passed = true, .worst = 0.5}, {});
  passed.add({.item = kSecond, .passed = false, .reason = "wrong"}, {});
  ASSERT_TRUE(passed.save().ok());
  const Passed again(folder, identity);
  EXPECT_EQ(again.note(), "");
  EXPECT_TRUE(again.has(kFirst, {}));
  EXPECT_EQ(again.worst(kFirst, {}), 0.5);
  EXPECT_FALSE(again.has(kSecond, {}));
  EXPECT_FALSE(again.has(kFirst, {.widths = {6144}})) << "it was not tried with those";
  Item exact = kFirst;
  exact.key.precision = Precision::exact;
  EXPECT_FALSE(again.has(exact, {}));
  EXPECT_FALSE(Passed(folder, identity, Passed::Earlier::forget).has(kFirst, {}));
}

TEST_F(RememberTest, AnotherBuildDeviceOrDriverIsAnotherMatter) {
  Passed passed(folder, identity);
  passed.add({.item = kFirst, .passed = true}, {});
  ASSERT_TRUE(passed.save().ok());
  for (std::string Identity::*part : {&Identity::program, &Identity::backend, &Identity::device, &Identity::driver}) {
    Identity other = identity;
    other.*part += "x";
    EXPECT_FALSE(Passed(folder, other).has(kFirst, {}));
  }
}

TEST_F(RememberTest, ABrokenFileIsIgnoredWithANote) {
  Passed passed(folder, identity);
  passed.add({.item = kFirst, .passed = true}, {});
  ASSERT_TRUE(passed.save().ok());
  for (const char* text : {"", "{", "[]", "{\"program\": \"1\"}"}) {
    std::ofstream(only_file()) << text;
    Passed broken(folder, identity);
    EXPECT_FALSE(broken.has(kFirst, {}));
    EXPECT_NE(broken.note(), "") << text;
    ASSERT_TRUE(broken.save().ok());
    EXPECT_EQ(Passed(folder, identity).note(), "") << "written anew";
  }
}

TEST_F(RememberTest, AFolderThatCannotBeWrittenIsAnErrorOfSaving) {
  std::ofstream{folder} << "a file";
  EXPECT_FALSE(Passed(folder, identity).save().ok());
  EXPECT_TRUE(Passed(fs::path(), identity).save().ok()) << "nowhere to keep it is no error";
}

// --- all together -------------------------------------------------------------------------------------------------

// One op with three kernels; linear.a and then linear.c are chosen unless refused.
Result<std::vector<Item>> choose_linear(const Refusals& refusals) {
  for (const char* kernel : {"linear.a", "linear.c"}) {
    if (find_refusal(refusals, "linear", kernel, kFirst.key) == nullptr)
      return std::vector<Item>{{.op = "linear", .kernel = kernel, .key = kFirst.key}};
  }
  return Error{"no kernel serves linear"};
}

const Item kThird = {.op = "linear", .kernel = "linear.c", .key = kFirst.key};

TEST_F(RememberTest, TheNextCandidateIsTriedAndServes) {
  const std::string refuse =
      say(begin_line(kFirst)) + say(outcome_line({.item = kFirst, .worst = 2, .reason = "error 2 where 1 is allowed"}));
  Passed passed(folder, identity);
  const auto found = admit_chosen(choose_linear, {}, script(if_asked(kFirst, refuse) + if_asked(kThird, passes(kThird))), passed);
  ASSERT_TRUE(found.ok()) << found.error().what;
  ASSERT_EQ(found->refusals.size(), 1u);
  EXPECT_EQ(found->sentences(), std::vector<std::string>{"linear.a (NVFP4, fast) refused: error 2 where 1 is allowed; linear.c serves"});
  // The next time only what was refused is tried again.
  const auto again = admit_chosen(choose_linear, {}, script(refuse), passed);
  ASSERT_TRUE(again.ok()) << again.error().what;
  EXPECT_EQ(again->remembered, 1);
  EXPECT_EQ(again->sentences(), found->sentences());
}

TEST_F(RememberTest, WhereNothingIsLeftTheErrorOfTheChoiceIsGiven) {
  const std::string crash = "kill -SEGV $$";
  Passed passed(folder, identity);
  const auto found =
      admit_chosen(choose_linear, {},
                   script(if_asked(kFirst, say(begin_line(kFirst)) + crash) + if_asked(kThird, say(begin_line(kThird)) + crash)), passed);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().what, "no kernel serves linear");
}

TEST_F(RememberTest, NothingIsStartedWhenAllIsKnown) {
  Passed passed(folder, identity);
  passed.add({.item = kFirst, .passed = true}, {});
  const auto found = admit_chosen(choose_linear, {}, {.command = {"/no/such/program"}}, passed);
  ASSERT_TRUE(found.ok()) << found.error().what;
  EXPECT_EQ(found->remembered, 1);
}

}  // namespace
}  // namespace reckoner::admission
