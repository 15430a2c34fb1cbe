#include "convert/quantise.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <system_error>
#include <thread>

#include "base/json.h"
#include "base/mapped_file.h"
#include "convert/metadata.h"
#include "convert/output_file.h"
#include "convert/shard.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxRecordBytes = std::int64_t{64} << 20;
constexpr std::int64_t kSpareBytes = std::int64_t{64} << 20;  // for the files beside the tensors

bool is_whole(const fs::path& out, const OutputShard& shard) {
  std::error_code error;
  const auto size = fs::file_size(out / shard.file, error);
  return !error && static_cast<std::int64_t>(size) == shard.bytes;
}

Status create_folder(const fs::path& out) {
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_directory(out, error))
    return Error{fmt::format("{}: expected a folder for the output, found a file", out.string()), "give another folder"};
  fs::create_directories(out, error);
  if (error)
    return Error{fmt::format("{}: cannot create the folder: {}", out.string(), error.message()), "give a folder that can be written"};
  return {};
}

// Whether `inner` is `outer` or lies in it. Both exist.
bool is_inside(const fs::path& inner, const fs::path& outer) {
  std::error_code error;
  const fs::path a = fs::canonical(inner, error);
  const fs::path b = fs::canonical(outer, error);
  return std::mismatch(b.begin(), b.end(), a.begin(), a.end()).first == b.end();
}

// What `out` holds must be the beginning of this very work.
Status check_content(const std::string& record, const fs::path& out) {
  std::error_code error;
  if (fs::exists(out / kQuantiseRecord, error)) {
    const std::string found = TRY(read_text_file(out / kQuantiseRecord, kMaxRecordBytes));
    if (found == record) return {};
    return Error{fmt::format("{}: holds the output of another command ({} differs: its source, format, modules, shard size or the version)",
                             out.string(), kQuantiseRecord),
                 "repeat that command to finish it, give another folder, or empty this one"};
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(out, error)) {
    // A record whose writing was cut off, before anything else was written.
    if (entry.path().filename() == std::string(kQuantiseRecord) + ".part") continue;
    return Error{
        fmt::format("{}: is not empty (it holds {}) and was not written by this command", out.string(), entry.path().filename().string()),
        "give a new or empty folder"};
  }
  return {};
}

Status check_space(const QuantisePlan& plan, const fs::path& out) {
  std::int64_t needed = kSpareBytes;
  for (const OutputShard& shard : plan.shards) needed += is_whole(out, shard) ? 0 : shard.bytes;
  struct statvfs space = {};
  if (::statvfs(out.c_str(), &space) != 0) return {};
  const auto available = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  if (available >= static_cast<double>(needed)) return {};
  return Error{fmt::format("{}: the output takes {:.2f} GB more, the disk has {:.2f} GB left", out.string(),
                           static_cast<double>(needed) / 1e9, available / 1e9),
               "free some space, or give a folder on another disk"};
}

// Leftovers of a run that was cut off.
void remove_parts(const fs::path& out) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(out, error)) {
    std::error_code ignored;
    if (entry.path().extension() == ".part") fs::remove(entry.path(), ignored);
  }
}

// Files of the source that say something else about the weights than the output, or are weights.
bool is_replaced(const fs::path& file) {
  static const std::set<std::string> kNames = {"config.json", "hf_quant_config.json", "model.safetensors.index.json", kQuantiseRecord};
  static const std::set<std::string> kExtensions = {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".part", ".incomplete"};
  return kNames.contains(file.filename().string()) || kExtensions.contains(file.extension().string());
}

// Tokenizer, templates, licence, ...: everything beside the weights, folders included; hidden ones are caches.
Status copy_other_files(const fs::path& from, const fs::path& to) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) entries.push_back(entry.path());
  if (error) return Error{fmt::format("{}: cannot list the folder: {}", from.string(), error.message()), "check its permissions"};
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (fs::is_directory(entry, error)) {
      if (name.starts_with(".")) continue;
      TRY(create_folder(to / name));
      TRY(copy_other_files(entry, to / name));
    } else if (fs::is_regular_file(entry, error) && !is_replaced(entry)) {
      TRY(copy_whole_file(entry, to / name));
    }
  }
  return {};
}

// Returns false when it was interrupted.
Result<bool> write_shards(const Model& model, const QuantisePlan& plan, const fs::path& out, ThreadPool& pool, const QuantiseEvents& events,
                          QuantiseReport& report) {
  std::int64_t total = 0;
  for (const OutputShard& shard : plan.shards) {
    if (is_whole(out, shard)) {
      ++report.shards_kept;
      continue;
    }
    for (std::size_t unit = shard.first_unit; unit < shard.first_unit + shard.units; ++unit) total += source_bytes(plan.units[unit]);
  }
  std::atomic<std::int64_t> done = 0;
  const std::thread::id caller = std::this_thread::get_id();
  const ShardWork work{.checkpoint = *model.checkpoint,
                       .plan = plan,
                       .pool = pool,
                       .done =
                           [&](std::int64_t bytes) {
                             const std::int64_t now = done += bytes;
                             if (events.progress && std::this_thread::get_id() == caller) events.progress(now, total);
                           },
                       .stop = events.interrupted};
  for (const OutputShard& shard : plan.shards) {
    if (is_whole(out, shard)) continue;
    OutputFile file = TRY(OutputFile::create(out / shard.file, shard.bytes));
    TRY(file.write(0, std::as_bytes(std::span(shard.header))));
    const bool whole = TRY(write_shard(work, shard, file));
    if (!whole) return false;
    TRY(file.finish());
  }
  report.source_bytes = done;
  return true;
}

}  // namespace

Status prepare_output(const Model& model, const QuantisePlan& plan, const fs::path& out) {
  const fs::path& source = model.checkpoint->folder();
  std::error_code error;
  if (fs::equivalent(source, out, error))
    return Error{fmt::format("{}: the output cannot go into the model's own folder", out.string()), "give another folder"};
  // The nearest folder that exists decides, before anything is created.
  fs::path existing = fs::absolute(out, error);
  while (!existing.empty() && !fs::exists(existing, error) && existing != existing.parent_path()) existing = existing.parent_path();
  if (is_inside(existing, source))
    return Error{fmt::format("{}: the output cannot go inside the model's own folder", out.string()), "give another folder"};
  TRY(create_folder(out));
  TRY(check_content(plan_record(model, plan), out));
  return check_space(plan, out);
}

Result<QuantiseReport> quantise(const Model& model, const QuantisePlan& plan, const fs::path& out, ThreadPool& pool,
                                const QuantiseEvents& events) {
  QuantiseReport report;
  remove_parts(out);
  const JsonDocument config = TRY(read_json_file(model.checkpoint->folder() / "config.json"));
  TRY(write_file(out / kQuantiseRecord, plan_record(model, plan)));
  const bool whole = TRY(write_shards(model, plan, out, pool, events, report));
  report.interrupted = !whole;
  if (report.interrupted) return report;
  TRY(copy_other_files(model.checkpoint->folder(), out));
  if (const std::optional<std::string> text = hf_quant_config(plan)) TRY(write_file(out / "hf_quant_config.json", *text));
  if (const std::optional<std::string> text = index_json(plan)) TRY(write_file(out / "model.safetensors.index.json", *text));
  TRY(write_file(out / "config.json", quantised_config(config.root(), plan)));
  return report;
}

}  // namespace reckoner
