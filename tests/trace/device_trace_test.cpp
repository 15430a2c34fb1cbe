// trace and replay on a device whose memory the host cannot touch (tests/device).
#include "fake_backend.h"
#include "faulty.h"
#include "kernels/device/backend_memory.h"
#include "model/upload.h"
#include "trace_support.h"

namespace reckoner::trace {
namespace {

class FakeStand {
 public:
  explicit FakeStand(const std::string& broken)
      : backend(fake_backend({.broken = broken})),
        model(opened("tests/golden/glm_moe_dsa")),
        memory(*backend, 0, (*backend->devices())[0]) {
    Result<ModelWeights> uploaded = upload_weights(*model, memory, pool, {});
    if (!uploaded) throw std::runtime_error(uploaded.error().message());
    weights = std::move(uploaded).value();
  }
  TraceReport run(const TraceWishes& wishes) {
    const TraceSubject subject{
        .model = *model,
        .weights = weights,
        .device = {.info = memory.info(), .catalogue = backend->catalogue(), .memory = &memory, .graphs = Graphs::on},
        .pool = pool,
        .precision = Precision::exact};
    Result<TraceReport> report = trace(subject, wishes);
    if (!report) throw std::runtime_error(report.error().message());
    return std::move(report).value();
  }

  const DeviceBackend* backend;
  std::unique_ptr<Model> model;
  ThreadPool pool{2};
  BackendMemory memory;
  ModelWeights weights;
};

// The fake device has a kernel of its own for every op, so ops that are several others at once are called on it. The processor has none
// for those: here it has the reference under another name.
template <class Args>
void serve_at_once(Catalogue& catalogue) {
  std::vector<Kernel<Args>>& list = catalogue.of<Args>();
  list.insert(list.begin(), {"at_once", [](const Key&, const DeviceInfo&) { return Support{}; },
                             [](const Args&, int) { return std::int64_t{0}; }, [](const Args& args, Lane&) { reference(args); }});
}

TEST(DeviceTrace, ValuesAreThoseOfTheProcessor) {
  FakeStand fake("");
  TraceStand cpu("tests/golden/glm_moe_dsa");
  const TraceWishes wishes{.prompt = some_prompt(*cpu.model, 21), .decode_steps = 2, .check_ops = Wish::yes, .keep_values = Wish::yes};
  const TraceReport on_device = fake.run(wishes);
  // Its kernels are the references: no error at all.
  EXPECT_FALSE(on_device.wrong.has_value()) << on_device.wrong->sentence();
  EXPECT_EQ(on_device.check_worst, 0);
  Catalogue of_host = cpu_catalogue();
  serve_at_once<RotateAndStoreArgs>(of_host);
  serve_at_once<GatedLinearArgs>(of_host);
  serve_at_once<GatedExpertsArgs>(of_host);
  serve_at_once<ExpertsCombineArgs>(of_host);
  serve_at_once<LinearGroupArgs>(of_host);
  const TraceReport on_host = cpu.run(of_host, wishes);
  ASSERT_EQ(on_device.values.values().size(), on_host.values.values().size());
  ASSERT_EQ(on_device.calls.size(), on_host.calls.size());
  for (std::size_t i = 0; i < on_host.calls.size(); ++i) {
    EXPECT_EQ(on_device.calls[i].name, on_host.calls[i].name);
    EXPECT_EQ(on_device.calls[i].output.count, on_host.calls[i].output.count);
    EXPECT_NEAR(on_device.calls[i].output.rms(), on_host.calls[i].output.rms(), 1e-4 * on_host.calls[i].output.rms() + 1e-12);
  }
  EXPECT_EQ(on_device.generated, on_host.generated);
}

TEST(DeviceTrace, AKernelOfTheDeviceIsNamedAndTheProcessorsAreNot) {
  FakeStand fake("rms_norm nan");
  const TraceFolder folder;
  TraceWishes wishes{.prompt = some_prompt(*fake.model, 9), .decode_steps = 0};
  wishes.bundle.path = folder.path / "bundle.safetensors";
  const TraceReport report = fake.run(wishes);
  ASSERT_TRUE(report.origin.has_value());
  EXPECT_EQ(report.origin->call.text(), "layer 0, input_norm: rms_norm");
  EXPECT_EQ(report.origin->kernel, "rms_norm.broken");
  EXPECT_EQ(report.origin->cause, Cause::kernel);
  ASSERT_NE(report.origin->bundle, "") << report.origin->bundle_error;
  const Result<Bundle> bundle = read_bundle(report.origin->bundle);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message();
  const Catalogue cpu = cpu_catalogue();
  const Catalogue device = fake.backend->catalogue();
  const Result<ReplayReport> replayed =
      replay(*bundle,
             {{.name = "cpu", .info = detect_cpu(), .catalogue = cpu},
              {.name = "cuda:0", .info = fake.memory.info(), .catalogue = device, .memory = &fake.memory}},
             fake.pool);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message();
  EXPECT_EQ(replayed->wrong, std::vector<std::string>{"rms_norm.broken"}) << replay_text(*replayed);
}

}  // namespace
}  // namespace reckoner::trace
