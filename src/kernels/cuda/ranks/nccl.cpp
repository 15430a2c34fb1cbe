#include "kernels/cuda/ranks/nccl.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

namespace reckoner {
namespace {

// What is used of NCCL's interface; the numbers have not changed since NCCL 2.0.
using Comm = void*;
constexpr int kSuccess = 0;
constexpr int kFloat32 = 7;
constexpr int kSum = 0;
constexpr int kOldest = 20900;  // 2.9: the first whose work can be recorded in graphs

struct Nccl {
  int (*get_version)(int* version) = nullptr;
  int (*comm_init_all)(Comm* comms, int count, const int* devices) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Comm comm, cudaStream_t stream) = nullptr;
  int (*comm_abort)(Comm comm) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  std::string library;
};

constexpr const char* kRemedy =
    "install NCCL 2 for this CUDA version (the PyPI package nvidia-nccl-cu13 has it), and put libnccl.so.2 on the library path, or set "
    "RECKONER_NCCL_LIBRARY to it";

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

std::string version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return "NCCL " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

Result<Nccl> open_library() {
  const char* const asked = std::getenv("RECKONER_NCCL_LIBRARY");
  const std::string path = asked != nullptr && *asked != '\0' ? asked : "libnccl.so.2";
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error{std::string("several GPUs need NCCL, which cannot be opened: ") + dlerror(), kRemedy};
  Nccl nccl;
  const bool complete = find(handle, "ncclGetVersion", nccl.get_version) && find(handle, "ncclCommInitAll", nccl.comm_init_all) &&
                        find(handle, "ncclAllReduce", nccl.all_reduce) && find(handle, "ncclCommAbort", nccl.comm_abort) &&
                        find(handle, "ncclGetErrorString", nccl.get_error_string);
  if (!complete) return Error{path + " is no NCCL: it lacks a function of NCCL's", kRemedy};
  int version = 0;
  nccl.get_version(&version);
  nccl.library = version_text(version);
  if (version < kOldest) return Error{path + " is " + nccl.library + ", which is older than 2.9", kRemedy};
  return nccl;
}

// Opened once; it stays open.
const Result<Nccl>& library() {
  static const Result<Nccl> opened = open_library();
  return opened;
}

Status checked(int code, const std::string& what) {
  if (code == kSuccess) return {};
  return Error{library()->library + ", " + what + ": " + library()->get_error_string(code),
               "set NCCL_DEBUG=WARN to see what NCCL says about it; --tp 1 works without NCCL"};
}

Status use(int device) {
  const cudaError_t code = cudaSetDevice(device);
  if (code == cudaSuccess) return {};
  return Error{std::string("CUDA, choosing a device: ") + cudaGetErrorString(code), "check the GPU with nvidia-smi"};
}

}  // namespace

Result<RankLinks> connect_by_nccl(const std::vector<int>& devices) {
  if (!library().ok()) return library().error();
  std::vector<Comm> comms(devices.size(), nullptr);
  TRY(checked(library()->comm_init_all(comms.data(), static_cast<int>(devices.size()), devices.data()), "connecting GPUs"));
  return RankLinks{.links = comms, .library = library()->library};
}

Status all_reduce_by_nccl(int device, RankLink link, Stream stream, std::byte* values, std::int64_t count) {
  TRY(use(device));
  return checked(
      library()->all_reduce(values, values, static_cast<std::size_t>(count), kFloat32, kSum, link, static_cast<cudaStream_t>(stream)),
      "adding up what the ranks have");
}

// Aborting waits for no other rank, unlike destroying, and at the end of a program there is nothing left to lose. It does wait for graphs.
Status disconnect_nccl(int device, RankLink link) {
  TRY(use(device));
  return checked(library()->comm_abort(link), "ending a rank's connection");
}

}  // namespace reckoner
