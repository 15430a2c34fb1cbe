// A tiny model with its weights read, and what tests of trace do with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>

#include "diagnose/trace/replay.h"
#include "diagnose/trace/trace.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner::trace {

namespace fs = std::filesystem;

inline std::unique_ptr<Model> opened(const fs::path& folder) {
  Result<std::unique_ptr<Model>> model = open_model(folder);
  if (!model) throw std::runtime_error(model.error().message());
  return std::move(model).value();
}

// A folder of its own for one test, removed with it.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name = (fs::temp_directory_path() / "reckoner_trace_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path = name;
  }
  ~TraceFolder() { fs::remove_all(path); }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  fs::path path;
};

inline std::vector<std::int32_t> some_prompt(const Model& model, std::int64_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>((7 * i * i + 3 * i + 5) % model.config.vocab_size));
  return ids;
}

struct TraceStand {
  explicit TraceStand(const fs::path& folder) : model(opened(folder)) {}
  std::unique_ptr<Model> model;
  ThreadPool pool{2};
  Precision precision = Precision::exact;

  TraceSubject subject(const Catalogue& catalogue) {
    return {.model = *model,
            .weights = model->weights,
            .device = {.info = detect_cpu(), .catalogue = catalogue},
            .pool = pool,
            .precision = precision};
  }
  TraceReport run(const Catalogue& catalogue, const TraceWishes& wishes) {
    const TraceSubject what = subject(catalogue);
    Result<TraceReport> report = trace(what, wishes);
    if (!report) throw std::runtime_error(report.error().message());
    return std::move(report).value();
  }
  ReplayReport replayed(const std::string& bundle, const Catalogue& catalogue) {
    const Result<Bundle> read = read_bundle(bundle);
    if (!read) throw std::runtime_error(read.error().message());
    const Result<ReplayReport> report = replay(*read, {{.name = "cpu", .info = detect_cpu(), .catalogue = catalogue}}, pool);
    if (!report) throw std::runtime_error(report.error().message());
    return *report;
  }
};

}  // namespace reckoner::trace
