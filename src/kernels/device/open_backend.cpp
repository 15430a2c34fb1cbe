#include "kernels/device/open_backend.h"

#include <backend_abi.h>  // generated: a hash of the headers that the program and backends share
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace reckoner {
namespace {

constexpr const char* kLibrary = "reckoner_cuda.so";

std::string beside_the_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? kLibrary : (program.parent_path() / kLibrary).string();
}

struct Library {
  void* handle = nullptr;
  std::string path;
};

Result<Library> open_library() {
  const char* const asked = std::getenv("RECKONER_CUDA_LIBRARY");
  if (asked != nullptr && *asked != '\0') {
    if (void* handle = dlopen(asked, RTLD_NOW | RTLD_LOCAL)) return Library{handle, asked};
    return Error{fmt::format("RECKONER_CUDA_LIBRARY: {}", dlerror()), "set it to a reckoner_cuda.so of this build, or unset it"};
  }
  const std::string beside = beside_the_program();
  std::error_code error;
  if (std::filesystem::exists(beside, error)) {
    if (void* handle = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library{handle, beside};
    return Error{fmt::format("the CUDA backend cannot be opened: {}", dlerror()), "build it again with `make cuda`"};
  }
  if (void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return Library{handle, kLibrary};
  return Error{fmt::format("the CUDA backend ({}) is neither beside the program nor on the library path", kLibrary),
               "build it with `make cuda`, or set RECKONER_CUDA_LIBRARY to it"};
}

Status check_build(const DeviceBackend* backend, const std::string& path) {
  if (backend != nullptr && backend->abi == kBackendAbi) return {};
  return Error{fmt::format("{} is of another build than this program", path), "build both together: `make cuda`"};
}

struct OpenedLibrary {
  const DeviceBackend* backend = nullptr;
  std::string path;
};

Result<OpenedLibrary> find_table() {
  const Library library = TRY(open_library());
  const auto function = reinterpret_cast<CudaBackendFunction>(dlsym(library.handle, kCudaBackendSymbol));
  if (function == nullptr)
    return Error{fmt::format("{} is no CUDA backend of Reckoner: it has no {}", library.path, kCudaBackendSymbol),
                 "build it with `make cuda`"};
  return OpenedLibrary{function(), library.path};
}

}  // namespace

Result<OpenedBackend> accept_backend(const DeviceBackend* backend, const std::string& path) {
  TRY(check_build(backend, path));
  std::vector<DeviceInfo> devices = TRY(backend->devices());
  OpenedBackend opened{.backend = backend, .path = path, .devices = std::move(devices)};
  if (opened.devices.empty())
    return Error{"the CUDA driver finds no GPU", "check that `nvidia-smi` lists one and CUDA_VISIBLE_DEVICES does not hide it"};
  return opened;
}

Result<OpenedBackend> open_cuda_backend() {
  const OpenedLibrary library = TRY(find_table());
  return accept_backend(library.backend, library.path);
}

Result<const DeviceBackend*> open_cuda_library() {
  const OpenedLibrary library = TRY(find_table());
  TRY(check_build(library.backend, library.path));
  return library.backend;
}

}  // namespace reckoner
