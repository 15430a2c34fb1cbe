#include "cli/device_choice.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "cli/text_format.h"
#include "kernels/device/backend_memory.h"
#include "kernels/device/open_backend.h"

namespace reckoner {
namespace {

std::string described(const DeviceInfo& info) {
  return fmt::format("{}, {} of memory, compute capability {}.{}", info.name, bytes_text(static_cast<double>(info.cuda.memory_bytes)),
                     info.cuda.major, info.cuda.minor);
}

std::string list_of(const std::vector<DeviceInfo>& devices) {
  std::string list;
  for (std::size_t i = 0; i < devices.size(); ++i) list += fmt::format("{}cuda:{} ({})", i == 0 ? "" : ", ", i, devices[i].name);
  return list;
}

// The number in "cuda:1"; 0 in "cuda" and "auto". GPUs for all ranks follow it.
Result<int> first_number(const std::string& asked, int ranks, const std::vector<DeviceInfo>& devices) {
  const std::size_t colon = asked.find(':');
  int number = 0;
  if (colon != std::string::npos) std::from_chars(asked.data() + colon + 1, asked.data() + asked.size(), number);
  const auto count = static_cast<int>(devices.size());
  if (number >= count) return Error{fmt::format("--device {}: there is no such GPU", asked), "here are " + list_of(devices)};
  if (number + ranks > count) {
    return Error{fmt::format("--tp {}: {} ranks need {} GPUs, here {} {}{}", ranks, ranks, ranks, count - number == 1 ? "is" : "are",
                             count - number, number > 0 ? fmt::format(" from cuda:{} on", number) : ""),
                 fmt::format("ask for fewer ranks, or use --device cpu; here are {}", list_of(devices))};
  }
  const auto differs = [&](int rank) {
    return devices[static_cast<std::size_t>(number + rank)].name != devices[static_cast<std::size_t>(number)].name;
  };
  for (int rank = 1; rank < ranks; ++rank) {
    if (differs(rank))
      return Error{fmt::format("--tp {}: the ranks need GPUs of one kind", ranks),
                   fmt::format("choose others with CUDA_VISIBLE_DEVICES; here are {}", list_of(devices))};
  }
  return number;
}

Result<DeviceChoice> use_gpu(const OpenedBackend& opened, int number, std::int64_t needed_bytes, int ranks) {
  const DeviceInfo& info = opened.devices[static_cast<std::size_t>(number)];
  auto memory = std::make_unique<BackendMemory>(*opened.backend, number, info);
  const std::int64_t free = memory->free_bytes();
  TRY(memory->status());
  if (needed_bytes > free) {
    return Error{fmt::format("the model needs {} of GPU memory{} (weights and a small cache), {} of {}{} are free",
                             bytes_text(static_cast<double>(needed_bytes)), ranks > 1 ? " a rank" : "",
                             bytes_text(static_cast<double>(free)), info.name, ranks > 1 ? fmt::format(" (cuda:{})", number) : ""),
                 "close what else uses the GPU, take a smaller quantisation (`reckoner quantize`), or use --device cpu"};
  }
  return DeviceChoice{.name = fmt::format("cuda:{}", number),
                      .memory = std::move(memory),
                      .catalogue = opened.backend->catalogue,
                      .library = opened.path,
                      .backend = opened.backend,
                      .number = number,
                      .why = described(info)};
}

Result<std::vector<DeviceChoice>> choose_gpus(const std::string& asked, const DeviceNeeds& needs) {
  // A kernel that is loaded when it is first used may wait for its GPU, which may be waiting for another rank: all are loaded at the start.
  if (needs.ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const OpenedBackend opened = TRY(open_cuda_backend());
  const int first = TRY(first_number(asked, needs.ranks, opened.devices));
  std::vector<DeviceChoice> gpus;
  for (int rank = 0; rank < needs.ranks; ++rank) {
    Result<DeviceChoice> gpu = use_gpu(opened, first + rank, needs.bytes, needs.ranks);
    if (!gpu.ok()) return std::move(gpu).error();
    gpus.push_back(std::move(gpu).value());
  }
  return gpus;
}

}  // namespace

Result<DeviceChoice> open_device(const std::string& name) {
  std::vector<DeviceChoice> gpus = TRY(choose_gpus(name, {}));
  return std::move(gpus.front());
}

Result<std::vector<DeviceChoice>> choose_devices(const std::string& asked, const DeviceNeeds& needs) {
  const auto processor = [](std::string why) {
    std::vector<DeviceChoice> only;
    only.push_back({.why = std::move(why)});
    return only;
  };
  if (asked == "cpu") return processor("--device");
  Result<std::vector<DeviceChoice>> gpus = choose_gpus(asked, needs);
  if (asked == "auto") {
    if (!gpus.ok()) return processor("auto: " + gpus.error().what);
    for (DeviceChoice& gpu : *gpus) gpu.why += "; auto: the model fits";
  } else if (!gpus.ok() && !gpus.error().what.starts_with("--")) {
    return Error{fmt::format("--device {}: {}", asked, gpus.error().what), gpus.error().remedy};
  }
  return gpus;
}

}  // namespace reckoner
