#include "diagnose/admission/passed.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "diagnose/admission/job.h"

namespace reckoner::admission {
namespace {

namespace fs = std::filesystem;

// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string name_of(const Item& item, const Shapes& shapes) {
  return fmt::format("{} {} {} {:016x}", item.op, item.kernel, item.key.index(), hash_of(to_text(shapes)));
}

struct Part {
  const char* name;
  std::string Identity::*value;
};
constexpr Part kParts[] = {
    {"program", &Identity::program}, {"backend", &Identity::backend}, {"device", &Identity::device}, {"driver", &Identity::driver}};

fs::path file_for(const fs::path& folder, const Identity& identity) {
  if (folder.empty()) return {};
  std::string all;
  for (const Part& part : kParts) all += identity.*part.value + "\n";
  return folder / fmt::format("{:016x}.json", hash_of(all));
}

}  // namespace

std::string build_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return "";
  return fmt::format("{} bytes, {}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

std::string describe(const DeviceInfo& device) {
  const CudaInfo& gpu = device.cuda;
  if (gpu.present())
    return fmt::format("{} {}.{} {} {}", device.name, gpu.major, gpu.minor, gpu.multiprocessors, gpu.shared_bytes_per_block);
  return fmt::format("{} {} {} {} {}", device.name, device.avx2, device.avx512, device.avx512_bf16, device.avx512_vnni);
}

fs::path cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "reckoner" / "admission";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "reckoner" / "admission" : fs::path();
}

Passed::Passed(const fs::path& folder, const Identity& identity, Earlier earlier) : file_(file_for(folder, identity)), identity_(identity) {
  std::error_code error;
  if (earlier == Earlier::forget || file_.empty() || !fs::exists(file_, error)) return;
  const Status status = read();
  if (status.ok()) return;
  worst_.clear();
  note_ = fmt::format("what kernels passed before is not readable and is found out again: {}", status.error().what);
}

Status Passed::read() {
  const JsonDocument document = TRY(read_json_file(file_));
  const JsonNode root = document.root();
  for (const Part& part : kParts) {
    const JsonNode node = TRY(root.required(part.name));
    const std::string value = TRY(node.as_string());
    if (value != identity_.*part.value) return node.unexpected("\"" + identity_.*part.value + "\"");
  }
  const JsonNode passed = TRY(root.required("passed"));
  const auto members = TRY(passed.as_object());
  for (const auto& [name, node] : members) {
    const double worst = TRY(node.as_float());
    worst_[name] = worst;
  }
  return {};
}

bool Passed::has(const Item& item, const Shapes& shapes) const { return worst_.contains(name_of(item, shapes)); }
double Passed::worst(const Item& item, const Shapes& shapes) const { return worst_.at(name_of(item, shapes)); }

void Passed::add(const Outcome& outcome, const Shapes& shapes) {
  if (outcome.passed) worst_[name_of(outcome.item, shapes)] = outcome.worst;
}

Status Passed::save() const {
  if (file_.empty()) return {};
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  boost::json::object root, passed;
  for (const Part& part : kParts) root[part.name] = identity_.*part.value;
  for (const auto& [name, worst] : worst_) passed[name] = worst;
  root["passed"] = std::move(passed);
  const fs::path unfinished = fmt::format("{}.{}", file_.string(), getpid());
  std::ofstream(unfinished) << boost::json::serialize(root) << "\n" << std::flush;
  fs::rename(unfinished, file_, error);
  if (!error) return {};
  fs::remove(unfinished, error);
  return Error{fmt::format("which kernels passed could not be kept in {}", file_.string()), "make the folder writable"};
}

}  // namespace reckoner::admission
