// Admission: good kernels pass, on the processor and on a fake GPU; every way of being broken is found and said; what passed is remembered.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "broken_kernel.h"
#include "diagnose/admission/admission.h"
#include "fake_backend.h"
#include "kernels/cpu/catalogue.h"
#include "kernels/device/backend_memory.h"
#include "quant/format.h"

namespace reckoner::admission {
namespace {

// Every kernel of an op, for each key that it serves; references too.
template <class Args>
void add_items(const std::vector<Kernel<Args>>& list, const DeviceInfo& device, std::vector<Item>& items) {
  constexpr bool kHasPrecision = requires(Args a) { a.precision; };
  constexpr bool kHasFormat = kHasPrecision || std::is_same_v<Args, EmbedArgs>;
  for (const Kernel<Args>& kernel : list) {
    for (int index = 0; index < (kHasFormat ? Key::kCount : 1); index += kHasPrecision ? 1 : 2) {
      const Key key = {.precision = static_cast<Precision>(index % 2), .format = static_cast<QuantFormat>(index / 2)};
      if (kernel.supports(key, device).yes)
        items.push_back({.op = std::string(Args::kName), .kernel = std::string(kernel.name), .key = key});
    }
  }
}

template <class... Args>
std::vector<Item> all_items(const KernelLists<Args...>& catalogue, const DeviceInfo& device) {
  std::vector<Item> items;
  (add_items(catalogue.template of<Args>(), device, items), ...);
  return items;
}

std::vector<Outcome> admit_on_host(const Catalogue& catalogue, const std::vector<Item>& items, const Shapes& shapes = {}) {
  ThreadPool pool(2);
  return admit({.catalogue = catalogue, .pool = pool}, items, shapes);
}

void expect_all_passed(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.passed) << to_text(outcome.item) << ": " << outcome.reason;
    EXPECT_LE(outcome.worst, 1) << to_text(outcome.item);
    const bool is_reference = outcome.item.kernel.ends_with(".reference");
    EXPECT_TRUE(outcome.worst == 0 || !is_reference) << to_text(outcome.item);
  }
}

TEST(Admit, EveryKernelOfThisProcessorPasses) {
  const Catalogue catalogue = cpu_catalogue();
  for (const DType cache : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const std::vector<Item> items = all_items(catalogue, detect_cpu());
    const std::vector<Outcome> outcomes = admit_on_host(catalogue, items, {.cache = cache});
    EXPECT_EQ(outcomes.size(), items.size());
    expect_all_passed(outcomes);
  }
}

TEST(Admit, RoundingIsSeenAndAllowed) {
  const Item item{.op = "linear", .kernel = "linear.fast", .key = {.precision = Precision::fast, .format = QuantFormat::bf16}};
  Catalogue catalogue;
  catalogue.of<LinearArgs>() = {{.name = "linear.fast",
                                 .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
                                 .workspace_bytes = [](const LinearArgs&, int) -> std::int64_t { return 0; },
                                 .run =
                                     [](const LinearArgs& args, Lane&) {
                                       reference(args);
                                       for (std::int64_t i = 0; i < args.y.shape.elements(); ++i) args.y.f32()[i] *= 1 + 0x1p-10f;
                                     }}};
  const Outcome fast = admit_on_host(catalogue, {item}).front();
  EXPECT_TRUE(fast.passed) << fast.reason;
  EXPECT_GT(fast.worst, 1e-3);
  Item exact = item;
  exact.key.precision = Precision::exact;
  const Outcome refused = admit_on_host(catalogue, {exact}).front();
  EXPECT_FALSE(refused.passed) << "2^-10 is more than exact may lose";
  EXPECT_GT(refused.worst, 1);
}

// The reference, spoiled.
template <class Args, const char* how>
Kernel<Args> broken_kernel() {
  return {.name = "broken",
          .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
          .workspace_bytes = [](const Args&, int) -> std::int64_t { return 64; },
          .run =
              [](const Args& args, Lane&) {
                reference(args);
                spoil(args, how);
              }};
}

template <const char* how, class... Args>
void add_broken(KernelLists<Args...>& catalogue) {
  (catalogue.template of<Args>().push_back(broken_kernel<Args, how>()), ...);
}

template <const char* how>
std::vector<Outcome> admit_broken() {
  Catalogue catalogue;
  add_broken<how>(catalogue);
  std::vector<Item> items;
  for (const Item& item : all_items(catalogue, detect_cpu())) {
    if (item.key.format == QuantFormat::f32 || item.key.format == QuantFormat::nvfp4) items.push_back(item);
  }
  return admit_on_host(catalogue, items);
}

constexpr char kNothing[] = "", kWrong[] = "wrong", kPast[] = "past", kBefore[] = "before", kNanWay[] = "nan", kInput[] = "input";

// Ops that store have no output but the cache, which spoil() leaves alone.
bool can_be_spoiled(const Outcome& outcome) { return !outcome.item.op.starts_with("store"); }

template <const char* how>
void expect_refused(const std::string& part) {
  for (const Outcome& outcome : admit_broken<how>()) {
    if (!can_be_spoiled(outcome)) continue;
    EXPECT_FALSE(outcome.passed) << how << " is not found in " << outcome.item.op;
    EXPECT_NE(outcome.reason.find(part), std::string::npos) << outcome.item.op << ": " << outcome.reason;
  }
}

TEST(Admit, AReferenceUnderAnotherNamePasses) { expect_all_passed(admit_broken<kNothing>()); }
TEST(Admit, OneWrongElementIsFound) { expect_refused<kWrong>("row "); }
TEST(Admit, AByteBehindAnOutputIsFound) { expect_refused<kPast>("wrote outside of its outputs"); }
TEST(Admit, AByteBeforeAnOutputIsFound) { expect_refused<kBefore>("wrote outside of its outputs"); }
TEST(Admit, ANanIsFound) {
  for (const Outcome& outcome : admit_broken<kNanWay>()) {
    if (!can_be_spoiled(outcome)) continue;
    EXPECT_FALSE(outcome.passed) << outcome.item.op;
    // An output of integers has no NaN: there it is a wrong number.
    const bool integers = outcome.item.op == "index_select";
    EXPECT_NE(outcome.reason.find(integers ? "row " : "NaN of finite inputs, "), std::string::npos) << outcome.reason;
  }
}
TEST(Admit, AnInputThatIsChangedIsFound) {
  for (const Outcome& outcome : admit_broken<kInput>()) EXPECT_FALSE(outcome.passed) << outcome.item.op;
}

// Rows of the cache: a wrong element of the token's own, and a byte of another's.
template <std::int64_t offset>
Outcome admit_spoiled_store() {
  Catalogue catalogue;
  catalogue.of<StoreRowsArgs>() = {{.name = "broken",
                                    .supports = [](const Key&, const DeviceInfo&) { return Support{}; },
                                    .workspace_bytes = [](const StoreRowsArgs&, int) -> std::int64_t { return 0; },
                                    .run =
                                        [](const StoreRowsArgs& args, Lane&) {
                                          reference(args);
                                          std::byte* row = args.cache.row(args.places.pages[0], args.places.positions.i32()[0]);
                                          row[offset < 0 ? args.cache.row_bytes() : offset] ^= std::byte{0x40};
                                        }}};
  return admit_on_host(catalogue, {{.op = "store_rows", .kernel = "broken"}}).front();
}

TEST(Admit, WrongRowsOfACacheAreFound) {
  EXPECT_NE(admit_spoiled_store<3>().reason.find("cache row 0"), std::string::npos) << admit_spoiled_store<3>().reason;
  EXPECT_NE(admit_spoiled_store<-1>().reason.find("rows of cache that are not its own"), std::string::npos)
      << admit_spoiled_store<-1>().reason;
}

TEST(Admit, UnknownKernelsAreRefused) {
  const Outcome outcome = admit_on_host(cpu_catalogue(), {{.op = "linear", .kernel = "linear.abacus"}}).front();
  EXPECT_FALSE(outcome.passed);
  EXPECT_EQ(outcome.reason, "there is no such kernel");
}

// --- on the fake GPU ----------------------------------------------------------------------------------------------

std::vector<Outcome> admit_on_fake(const FakeGpu& gpu, std::int64_t fail_after = INT64_MAX) {
  const DeviceBackend* const backend = fake_backend(gpu);
  const Catalogue catalogue = backend->catalogue();
  BackendMemory memory(*backend, 0, (*backend->devices())[0]);
  fake_fail_after(fail_after);
  std::vector<Item> items;
  for (const Item& item : all_items(catalogue, memory.info())) {
    if (item.key.format == QuantFormat::f32 || item.key.format == QuantFormat::nvfp4) items.push_back(item);
  }
  ThreadPool pool(1);
  return admit({.catalogue = catalogue, .memory = &memory, .pool = pool}, items, {});
}

TEST(AdmitOnDevice, GoodKernelsPass) {
  const std::vector<Outcome> outcomes = admit_on_fake({});
  std::set<std::string> ops;
  for (const Outcome& outcome : outcomes) ops.insert(outcome.item.op);
  EXPECT_EQ(ops.size(), 24u);
  expect_all_passed(outcomes);
  EXPECT_EQ(fake_counts().allocated_bytes, 0) << "everything was given back";
}

TEST(AdmitOnDevice, BrokenOnesAreFoundAndOthersAreNotTheirVictims) {
  for (const char* how : {"wrong", "past", "before", "nan", "input"}) {
    for (const Outcome& outcome : admit_on_fake({.broken = std::string("rms_norm ") + how}))
      EXPECT_EQ(outcome.passed, outcome.item.kernel != "rms_norm.broken") << how << ", " << outcome.item.kernel << ": " << outcome.reason;
  }
}

TEST(AdmitOnDevice, AFailedDeviceEndsTheRun) {
  const std::vector<Outcome> outcomes = admit_on_fake({}, 2);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_NE(outcomes.front().reason.find("illegal memory access"), std::string::npos) << outcomes.front().reason;
}

}  // namespace
}  // namespace reckoner::admission
