#include "fake_backend.h"

#include <backend_abi.h>  // generated: a hash of the headers that the program and backends share
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "broken_kernel.h"
#include "parallel/thread_communicator.h"
#include "quant/format.h"

namespace reckoner {
namespace {

using Work = std::function<void()>;

struct FakeStream {
  std::vector<Work> queue;
  bool recording = false;
  std::vector<Work> recorded;
};

constexpr std::int64_t kMemoryPage = 4096;
std::int64_t whole_pages(std::int64_t bytes) { return (bytes + kMemoryPage - 1) / kMemoryPage * kMemoryPage; }

// One fake at a time: the backend's functions have no state of their own to refer to.
struct State {
  std::mutex mutex;
  FakeGpu gpu;
  FakeCounts counts;
  std::int64_t good_steps = 0;
  int graphs = 0;                                   // recorded and not released
  int working = 0;                                  // devices that are doing what is on a stream
  std::map<const std::byte*, std::int64_t> device;  // start and size of what is given out
  std::map<const std::byte*, std::int64_t> pinned;
};

State& state() {
  static State instance;
  return instance;
}

void count(std::int64_t FakeCounts::*what) {
  const std::lock_guard lock(state().mutex);
  ++(state().counts.*what);
}

bool within(const std::map<const std::byte*, std::int64_t>& memory, const void* data, std::int64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  auto found = memory.upper_bound(first);
  if (found == memory.begin()) return false;
  --found;
  return first + bytes <= found->first + found->second;
}

void expect_device(const void* data, std::int64_t bytes, std::string_view what) {
  const std::lock_guard lock(state().mutex);
  CHECK(within(state().device, data, bytes), what);
}
void expect_pinned(const void* data, std::int64_t bytes, std::string_view what) {
  const std::lock_guard lock(state().mutex);
  CHECK(within(state().pinned, data, bytes), what);
}

void protect(int protection) {
  for (const auto& [data, bytes] : state().device)
    CHECK(mprotect(const_cast<std::byte*>(data), static_cast<std::size_t>(whole_pages(bytes)), protection) == 0);
}

void put(Stream stream, Work work) {
  CHECK(stream != nullptr, "work without a stream");
  auto& fake = *static_cast<FakeStream*>(stream);
  (fake.recording ? fake.recorded : fake.queue).push_back(std::move(work));
}

// --- kernels ------------------------------------------------------------------------------------------------------

// Refuses arguments that a device could not follow.
struct Inspector {
  void in(std::string_view name, const Tensor& tensor) {
    if (!tensor.empty()) expect_device(tensor.data, tensor.bytes(), name);
  }
  void out(std::string_view name, const Tensor& tensor) { in(name, tensor); }
  void inout(std::string_view name, const Tensor& tensor) { in(name, tensor); }
  void weight(std::string_view name, const Weight& w) {
    const FormatInfo& format = info(w.format);
    const std::int64_t row_bytes = format.row_bytes(w.cols);
    expect_device(w.data, w.rows * row_bytes, name);
    if (row_bytes % 16 == 0) CHECK(reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0, name);
    if (w.scales != nullptr)
      expect_device(scale_row(w, 0), scale_row(w, w.rows - 1) - scale_row(w, 0) + format.scale_row_bytes(w.cols), name);
  }
  void weights(std::string_view name, std::span<const Weight> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      weight(name, all[i]);
      if (i < 2) continue;
      CHECK(all[i].data - all[i - 1].data == all[1].data - all[0].data, "experts at unequal distances");
      CHECK(all[i].scales - all[i - 1].scales == all[1].scales - all[0].scales, "scales of experts at unequal distances");
    }
  }
  void places(const TokenPlaces& places) {
    CHECK(places.pages.empty(), "a device cannot follow the host's page tables");
    in("positions", places.positions);
    CHECK(places.table.dim(0) == places.positions.dim(0));
    in("table", places.table);
  }
  void cache_in(std::string_view name, const CacheView& cache) { expect_device(cache.base, cache.page_bytes, name); }
  void cache_out(std::string_view name, const CacheView& cache) { cache_in(name, cache); }
};

// The reference finds pages through pointers.
template <class Args>
void run_reference(Args args) {
  if constexpr (requires { args.places; }) {
    std::vector<const std::int32_t*> pages;
    for (std::int64_t token = 0; token < args.places.table.dim(0); ++token)
      pages.push_back(args.places.table.i32() + token * args.places.table.dim(1));
    args.places.pages = pages;
    reference(args);
  } else {
    reference(args);
  }
}

constexpr std::int64_t kWorkspaceBytes = 512;

template <class Args>
Support supports(const Key& key, const DeviceInfo& device) {
  if (!device.cuda.present()) return {.yes = false, .reason = "no CUDA device"};
  if (std::is_same_v<Args, LinearArgs> && key.format == QuantFormat::bf16 && state().gpu.lacks_linear_bf16)
    return {.yes = false, .reason = "needs what the fake lacks"};
  return {.shared_bytes = std::is_same_v<Args, LinearExpertsArgs> ? 40'960 : 0};
}

template <class Args>
void run(const Args& args, Lane& lane) {
  visit(args, Inspector());
  expect_device(lane.workspace, kWorkspaceBytes, "workspace");
  CHECK(reinterpret_cast<std::uintptr_t>(lane.workspace) % 256 == 0);
  count(&FakeCounts::kernels);
  put(lane.stream, [args, workspace = lane.workspace] {
    std::memset(workspace, 0x5a, kWorkspaceBytes);
    run_reference(args);
  });
}

template <class Args>
Support supports_broken(const Key&, const DeviceInfo&) {
  const bool is_this = state().gpu.broken.starts_with(std::string(Args::kName) + " ");
  return {.yes = is_this, .reason = "not broken"};
}

template <class Args>
void run_broken(const Args& args, Lane& lane) {
  run(args, lane);
  put(lane.stream, [args] { spoil(args, std::string_view(state().gpu.broken).substr(Args::kName.size() + 1)); });
}

// The names live as long as the program.
template <class Args>
void add_kernels(std::vector<Kernel<Args>>& list) {
  static const std::string broken = std::string(Args::kName) + ".broken", fake = std::string(Args::kName) + ".fake";
  const auto workspace_bytes = [](const Args&, int) { return kWorkspaceBytes; };
  if (!state().gpu.broken.empty())
    list.push_back({.name = broken, .supports = supports_broken<Args>, .workspace_bytes = workspace_bytes, .run = run_broken<Args>});
  list.push_back({.name = fake, .supports = supports<Args>, .workspace_bytes = workspace_bytes, .run = run<Args>});
}

template <class... Args>
void add_all_kernels(KernelLists<Args...>& catalogue) {
  (add_kernels(catalogue.template of<Args>()), ...);
}

Catalogue catalogue() {
  Catalogue all;
  add_all_kernels(all);
  return all;
}

// --- the table ----------------------------------------------------------------------------------------------------

Result<std::vector<DeviceInfo>> devices() {
  if (!state().gpu.has_driver) return Error{"there is no driver here", "install one"};
  const DeviceInfo fake{.name = "Fake GPU",
                        .cuda = {.major = 9,
                                 .minor = 0,
                                 .multiprocessors = 2,
                                 .shared_bytes_per_block = 232'448,
                                 .memory_bytes = state().gpu.memory_bytes,
                                 .memory_gbs = 1},
                        .driver = "fake 1"};
  return std::vector<DeviceInfo>(static_cast<std::size_t>(state().gpu.count), fake);
}

Result<std::int64_t> free_bytes(int) {
  const std::lock_guard lock(state().mutex);
  return state().gpu.memory_bytes - state().counts.allocated_bytes;
}

// Whole pages of their own, nothing for the host to see. What is read before it is written is NaN, and -1 as an integer.
Result<std::byte*> allocate(int, std::int64_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (state().counts.allocated_bytes + bytes > state().gpu.memory_bytes) return Error{"out of memory"};
  const auto size = static_cast<std::size_t>(whole_pages(bytes));
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  std::memset(memory, 0xff, std::min(size, std::size_t{64} << 20));
  CHECK(mprotect(memory, size, PROT_NONE) == 0);
  state().counts.allocated_bytes += bytes;
  state().device[static_cast<std::byte*>(memory)] = bytes;
  return static_cast<std::byte*>(memory);
}

Status release(int, std::byte* memory) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().device.find(memory);
  CHECK(found != state().device.end(), "released what was not given out");
  state().counts.allocated_bytes -= found->second;
  munmap(memory, static_cast<std::size_t>(whole_pages(found->second)));
  state().device.erase(found);
  return {};
}

Result<std::byte*> allocate_pinned(int, std::int64_t bytes) {
  auto* const memory = new std::byte[static_cast<std::size_t>(bytes)];
  const std::lock_guard lock(state().mutex);
  state().pinned[memory] = bytes;
  return memory;
}

Status release_pinned(int, std::byte* memory) {
  const std::lock_guard lock(state().mutex);
  CHECK(state().pinned.erase(memory) == 1, "released what was not given out");
  delete[] memory;
  return {};
}

Result<Stream> make_stream(int) { return static_cast<Stream>(new FakeStream); }
Status release_stream(int, Stream stream) {
  delete static_cast<FakeStream*>(stream);
  return {};
}

Status copy(Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  put(stream, [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
  return {};
}

Status copy_in(int, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  expect_device(to, bytes, "copy_in: to");
  expect_pinned(from, bytes, "copy_in: from");
  count(&FakeCounts::copies_in);
  return copy(stream, to, from, bytes);
}

Status copy_out(int, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  expect_pinned(to, bytes, "copy_out: to");
  expect_device(from, bytes, "copy_out: from");
  count(&FakeCounts::copies_out);
  return copy(stream, to, from, bytes);
}

Status copy_within(int, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  expect_device(to, bytes, "copy_within: to");
  expect_device(from, bytes, "copy_within: from");
  return copy(stream, to, from, bytes);
}

Status fill(int, Stream stream, std::byte* memory, std::uint8_t value, std::int64_t bytes) {
  expect_device(memory, bytes, "fill");
  put(stream, [=] { std::memset(memory, value, static_cast<std::size_t>(bytes)); });
  return {};
}

// Devices work at the same time: ranks wait for each other.
Status synchronise(int, Stream stream) {
  auto& fake = *static_cast<FakeStream*>(stream);
  CHECK(!fake.recording, "waiting for what is being recorded");
  const std::vector<Work> queue = std::exchange(fake.queue, {});
  {
    const std::lock_guard lock(state().mutex);
    // A step has many kernels, an upload one copy at a time.
    if (queue.size() > 3 && --state().good_steps < 0) return Error{"an illegal memory access was encountered"};
    if (queue.empty()) return {};
    ++state().working;
    protect(PROT_READ | PROT_WRITE);
  }
  for (const Work& work : queue) work();
  const std::lock_guard lock(state().mutex);
  if (--state().working == 0) protect(PROT_NONE);
  return {};
}

Status begin_capture(int, Stream stream) {
  if (state().gpu.refuses_capture) return Error{"operation not permitted when stream is capturing"};
  static_cast<FakeStream*>(stream)->recording = true;
  return {};
}

Result<DeviceGraph> end_capture(int, Stream stream) {
  auto& fake = *static_cast<FakeStream*>(stream);
  CHECK(fake.recording);
  fake.recording = false;
  count(&FakeCounts::recorded);
  const std::lock_guard lock(state().mutex);
  ++state().graphs;
  return static_cast<DeviceGraph>(new std::vector<Work>(std::exchange(fake.recorded, {})));
}

Status launch(int, DeviceGraph graph, Stream stream) {
  for (const Work& work : *static_cast<std::vector<Work>*>(graph)) put(stream, work);
  count(&FakeCounts::replayed);
  return {};
}

Status release_graph(int, DeviceGraph graph) {
  delete static_cast<std::vector<Work>*>(graph);
  const std::lock_guard lock(state().mutex);
  --state().graphs;
  return {};
}

Result<RankLinks> connect(const std::vector<int>& devices) {
  RankLinks all{.links = {}, .library = "a fake of NCCL"};
  for (std::unique_ptr<Communicator>& end : thread_communicators(static_cast<int>(devices.size())))
    all.links.push_back(new std::shared_ptr<Communicator>(std::move(end)));
  return all;
}

Status all_reduce(int, RankLink link, Stream stream, std::byte* values, std::int64_t count_of_values) {
  expect_device(values, count_of_values * size_bytes(DType::f32), "all_reduce");
  count(&FakeCounts::sums);
  const Tensor tensor{.data = values, .dtype = DType::f32, .shape = {count_of_values}};
  put(stream, [end = *static_cast<std::shared_ptr<Communicator>*>(link), tensor] { end->all_reduce(tensor, nullptr); });
  return {};
}

// As NCCL does, it waits for recorded steps to go.
Status disconnect(int, RankLink link) {
  auto* const end = static_cast<std::shared_ptr<Communicator>*>(link);
  (*end)->cancel({"disconnected"});
  const auto are_left = [] {
    const std::lock_guard lock(state().mutex);
    return state().graphs > 0;
  };
  while (are_left()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete end;
  return {};
}

}  // namespace

const DeviceBackend* fake_backend(const FakeGpu& gpu) {
  CHECK(state().device.empty() && state().pinned.empty(), "a fake is still in use");
  state().gpu = gpu;
  state().counts = {};
  fake_fail_after(INT64_MAX);
  static DeviceBackend backend = {.devices = devices,
                                  .catalogue = catalogue,
                                  .free_bytes = free_bytes,
                                  .allocate = allocate,
                                  .release = release,
                                  .allocate_pinned = allocate_pinned,
                                  .release_pinned = release_pinned,
                                  .make_stream = make_stream,
                                  .release_stream = release_stream,
                                  .copy_in = copy_in,
                                  .copy_out = copy_out,
                                  .copy_within = copy_within,
                                  .fill = fill,
                                  .synchronise = synchronise,
                                  .begin_capture = begin_capture,
                                  .end_capture = end_capture,
                                  .launch = launch,
                                  .release_graph = release_graph,
                                  .connect = connect,
                                  .all_reduce = all_reduce,
                                  .disconnect = disconnect};
  backend.abi = gpu.is_other_build ? kBackendAbi + 1 : kBackendAbi;
  return &backend;
}

FakeCounts fake_counts() { return state().counts; }

void fake_fail_after(std::int64_t steps) {
  const std::lock_guard lock(state().mutex);
  state().good_steps = steps;
}

}  // namespace reckoner
