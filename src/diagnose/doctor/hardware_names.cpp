#include "diagnose/doctor/hardware_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace reckoner::doctor {
namespace {

constexpr int kMostGpus = 64;

struct ProfilePeaks {
  std::string_view profile;
  Peaks peaks;
};
constexpr ProfilePeaks kPeaks[] = {
    {"h100", {989, Link::nvlink, 450}},      {"h200", {989, Link::nvlink, 450}},  {"b200", {2250, Link::nvlink, 900}},
    {"rtx-pro-6000", {503, Link::pcie, 55}}, {"rtx-5090", {209, Link::pcie, 55}}, {"rtx-4090", {165, Link::pcie, 27}},
    {"gb10", {125, Link::none, 0, true}},
};

// "NVIDIA RTX PRO 6000" becomes "rtx-pro-6000".
std::string normalised(std::string_view text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  for (const std::string_view maker : {"nvidia-", "geforce-"}) {
    if (name.starts_with(maker)) name.erase(0, maker.size());
  }
  return name;
}

const HardwareProfile* named(std::string_view text) {
  const std::string name = normalised(text);
  for (const HardwareProfile& profile : hardware_profiles()) {
    if (name == profile.name || name == normalised(profile.full_name)) return &profile;
  }
  return nullptr;
}

std::string known() {
  std::vector<std::string_view> names = {"cpu"};
  for (const HardwareProfile& profile : hardware_profiles()) names.push_back(profile.name);
  return fmt::format("known are {}, with a count before it: 8x {}", fmt::join(names, ", "), "rtx-pro-6000");
}

// Takes "8x " or "8 x " from the front; 1 where there is none. A name that begins with a digit is no count.
int take_count(std::string_view& text) {
  int count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc()) return 1;
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (rest.empty() || (rest.front() != 'x' && rest.front() != 'X' && rest.front() != '*')) return 1;
  rest.remove_prefix(1);
  text = rest;
  return count;
}

}  // namespace

Result<NamedHardware> parse_hardware(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  const std::string whole(text);
  const int count = take_count(text);
  if (count < 1 || count > kMostGpus) return Error{fmt::format("'{}': expected 1 to {} GPUs", whole, kMostGpus), known()};
  if (normalised(text) == "cpu" && count == 1) return NamedHardware{};
  const HardwareProfile* const profile = named(text);
  if (profile == nullptr) return Error{fmt::format("there is no hardware '{}'", whole), known()};
  return NamedHardware{.count = count, .profile = profile};
}

const HardwareProfile* profile_of(std::string_view device_name) {
  const std::string name = "-" + normalised(device_name) + "-";
  for (const HardwareProfile& profile : hardware_profiles()) {
    if (name.find(fmt::format("-{}-", profile.name)) != std::string::npos) return &profile;
  }
  return nullptr;
}

std::optional<Peaks> peaks_of(const HardwareProfile& profile) {
  for (const ProfilePeaks& one : kPeaks) {
    if (one.profile == profile.name) return one.peaks;
  }
  return std::nullopt;
}

}  // namespace reckoner::doctor
