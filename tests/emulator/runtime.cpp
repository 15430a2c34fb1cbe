// The CUDA runtime of the emulated GPU. A stream is a thread of the processor with a queue, as kernels of several ranks wait for each
// other.
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reckoner::emulated {
namespace {

using Work = std::function<void()>;

// What is set in the environment, or `otherwise`.
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}
// As an H200 but for its size; RECKONER_EMULATED_ARCH=120 for what a workstation's GPU has.
int architecture() { return setting("RECKONER_EMULATED_ARCH", 90); }
int devices() { return setting("RECKONER_EMULATED_DEVICES", 1); }
int multiprocessors() { return setting("RECKONER_EMULATED_MULTIPROCESSORS", 6); }
constexpr std::size_t kMemoryBytes = std::size_t{4} << 30;
constexpr int kPlainSharedBytes = 48 << 10;
int shared_bytes() { return architecture() / 10 == 9 || architecture() / 10 == 10 ? 232'448 : 101'376; }

thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

// What was allocated, and what functions and devices have of their own.
struct Books {
  std::mutex mutex;
  std::map<void*, std::size_t> allocated;
  std::size_t used = 0;
  std::map<const void*, int> allowed;
  std::map<std::pair<const void*, int>, std::unique_ptr<unsigned char[]>> variables;
};
Books& books() {
  static Books all;
  return all;
}

}  // namespace

class Graph {
 public:
  std::vector<Work> works;
};

class Stream {
 public:
  Stream() : thread_([this] { live(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void add(Work work) {
    if (recorded_ != nullptr) {
      recorded_->works.push_back(std::move(work));
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }
  void record() { recorded_ = std::make_unique<Graph>(); }
  Graph* end_recording() { return recorded_.release(); }

 private:
  void live() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false, ended_ = false;
  std::unique_ptr<Graph> recorded_;
  std::thread thread_;
};

namespace {

void add(cudaStream_t stream, Work work) {
  if (stream == nullptr) {
    work();
  } else {
    stream->add(std::move(work));
  }
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body) {
  Launch launch{.grid = config.gridDim,
                .block = config.blockDim,
                .cluster = {},
                .shared_bytes = config.dynamicSmemBytes,
                .kernel = kernel,
                .body = std::move(body)};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& of_cluster = config.attrs[i].val.clusterDim;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) launch.cluster = dim3(of_cluster.x, of_cluster.y, of_cluster.z);
  }
  const dim3 &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  int allowed = kPlainSharedBytes;
  {
    const std::lock_guard lock(books().mutex);
    const auto found = books().allowed.find(kernel);
    if (found != books().allowed.end()) allowed = std::max(allowed, found->second);
  }
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0 || std::cmp_greater(launch.shared_bytes, allowed)) {
    return failed(cudaErrorInvalidValue);
  }
  add(config.stream, [launch = std::move(launch)] { run(launch); });
  return cudaSuccess;
}

cudaError_t allow_shared(const void* kernel, int bytes) {
  if (bytes > shared_bytes()) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(books().mutex);
  books().allowed[kernel] = bytes;
  return cudaSuccess;
}

void* variable_of_device(const void* variable, std::size_t bytes) {
  const std::lock_guard lock(books().mutex);
  auto& own = books().variables[{variable, device}];
  if (own == nullptr) {
    own = std::make_unique<unsigned char[]>(bytes);
    std::memcpy(own.get(), variable, bytes);
  }
  return own.get();
}

}  // namespace reckoner::emulated

using namespace reckoner::emulated;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorInvalidValue       ? "cudaErrorInvalidValue"
         : code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : code == cudaErrorInvalidDevice    ? "cudaErrorInvalidDevice"
                                             : "an error of the emulated GPU";
}
const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* out) {
  *out = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int chosen) {
  if (chosen < 0 || chosen >= devices()) return failed(cudaErrorInvalidDevice);
  device = chosen;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strncpy(properties->name, "emulated GPU", sizeof(properties->name) - 1);
  properties->major = architecture() / 10, properties->minor = architecture() % 10;
  properties->multiProcessorCount = multiprocessors(), properties->l2CacheSize = 50 << 20;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(shared_bytes()), properties->totalGlobalMem = kMemoryBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors();
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 1'000'000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 64;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = architecture() / 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_bytes();
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(books().mutex);
  *total = kMemoryBytes, *free = kMemoryBytes - books().used;
  return cudaSuccess;
}
// Exactly as much as was asked for, full of NaN.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const std::lock_guard lock(books().mutex);
  *memory = nullptr;
  if (bytes > kMemoryBytes - books().used || posix_memalign(memory, 256, std::max<std::size_t>(bytes, 1)) != 0)
    return failed(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, bytes);
  books().allocated[*memory] = bytes;
  books().used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(books().mutex);
  if (memory == nullptr) return cudaSuccess;
  const auto found = books().allocated.find(memory);
  if (found == books().allocated.end()) return failed(cudaErrorInvalidValue);
  books().used -= found->second;
  books().allocated.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return posix_memalign(memory, 4096, std::max<std::size_t>(bytes, 1)) == 0 ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (bytes > 0) add(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0) add(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) { return cudaMemsetAsync(memory, value, bytes, nullptr); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) stream->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return stream == nullptr || stream->is_idle() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->record();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->end_recording();
  return *graph != nullptr ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable->works) add(stream, work);
  return cudaSuccess;
}
