#include "cli/device_choice.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/text_format.h"
#include "kernels/device/backend_memory.h"
#include "kernels/device/open_backend.h"

namespace reckoner {
namespace {

std::string described(const DeviceInfo& info) {
  return fmt::format("{}, {} of memory, compute capability {}.{}", info.name, bytes_text(static_cast<double>(info.cuda.memory_bytes)),
                     info.cuda.major, info.cuda.minor);
}

// The number in "cuda:1"; 0 in "cuda" and "auto".
Result<int> number_in(const std::string& asked, const std::vector<DeviceInfo>& devices) {
  const std::size_t colon = asked.find(':');
  int number = 0;
  if (colon != std::string::npos) std::from_chars(asked.data() + colon + 1, asked.data() + asked.size(), number);
  if (number < static_cast<int>(devices.size())) return number;
  std::string list;
  for (std::size_t i = 0; i < devices.size(); ++i) list += fmt::format("{}cuda:{} ({})", i == 0 ? "" : ", ", i, devices[i].name);
  return Error{fmt::format("--device {}: there is no such GPU", asked), "here are " + list};
}

Result<DeviceChoice> choose_gpu(const std::string& asked, std::int64_t needed_bytes) {
  const OpenedBackend opened = TRY(open_cuda_backend());
  const int number = TRY(number_in(asked, opened.devices));
  const DeviceInfo& info = opened.devices[static_cast<std::size_t>(number)];
  auto memory = std::make_unique<BackendMemory>(*opened.backend, number, info);
  const std::int64_t free = memory->free_bytes();
  TRY(memory->status());
  if (needed_bytes > free) {
    return Error{fmt::format("the model needs {} of GPU memory (weights and a small cache), {} of {} are free",
                             bytes_text(static_cast<double>(needed_bytes)), bytes_text(static_cast<double>(free)), info.name),
                 "close what else uses the GPU, take a smaller quantisation (`reckoner quantize`), or use --device cpu"};
  }
  return DeviceChoice{.name = fmt::format("cuda:{}", number),
                      .memory = std::move(memory),
                      .catalogue = opened.backend->catalogue,
                      .library = opened.path,
                      .why = described(info)};
}

}  // namespace

Result<DeviceChoice> open_device(const std::string& name) { return choose_gpu(name, 0); }

Result<DeviceChoice> choose_device(const std::string& asked, std::int64_t needed_bytes) {
  if (asked == "cpu") return DeviceChoice{.why = "--device"};
  Result<DeviceChoice> gpu = choose_gpu(asked, needed_bytes);
  if (asked == "auto") {
    if (!gpu.ok()) return DeviceChoice{.why = "auto: " + gpu.error().what};
    gpu->why += "; auto: the model fits";
  } else if (!gpu.ok() && !gpu.error().what.starts_with("--device")) {
    return Error{fmt::format("--device {}: {}", asked, gpu.error().what), gpu.error().remedy};
  }
  return gpu;
}

}  // namespace reckoner
