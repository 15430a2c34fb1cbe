#include "diagnose/trace/step_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace reckoner::trace {
namespace {

enum class When : std::uint8_t { before, after };

// A visitor of an op's Args: numbers of what it reads, before it runs, or of what it wrote, after.
class Measure {
 public:
  Measure(When when, HostReader& reader, std::vector<ArgumentStats>& into) : when_(when), reader_(reader), into_(into) {}

  void in(const char* name, const Tensor& tensor) {
    if (when_ == When::before) add(name, tensor);
  }
  void out(const char* name, const Tensor& tensor) {
    if (when_ == When::after) add(name, tensor);
  }
  void inout(const char* name, const Tensor& tensor) { add(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces& places) {
    tables_ = page_tables(places, reader_);
    const Tensor here = reader_.here(places.positions);
    positions_.assign(here.i32(), here.i32() + here.dim(0));
  }
  // All rows that the tokens may read, each once.
  void cache_in(const char* name, const CacheView& cache) {
    if (when_ != When::before) return;
    std::map<std::vector<std::int32_t>, std::int64_t> rows;  // of each page table
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      std::int64_t& count = rows[tables_[t]];
      count = std::max<std::int64_t>(count, positions_[t] + 1);
    }
    std::set<std::pair<std::int32_t, std::int64_t>> done;  // page, row
    ArgumentStats& stats = new_stats(name, cache.row_elements);
    for (const auto& [table, count] : rows) {
      for (std::int64_t position = 0; position < count; ++position) {
        if (done.emplace(table[static_cast<std::size_t>(position / kPageTokens)], position % kPageTokens).second)
          add_row(cache, table, position, stats);
      }
    }
  }
  // The rows of the tokens.
  void cache_out(const char* name, const CacheView& cache) {
    if (when_ != When::after) return;
    ArgumentStats& stats = new_stats(name, cache.row_elements);
    for (std::size_t t = 0; t < tables_.size(); ++t) add_row(cache, tables_[t], positions_[t], stats);
  }

 private:
  ArgumentStats& new_stats(const char* name, std::int64_t row_elements) {
    into_.push_back({.name = name, .values = {}, .row_elements = row_elements});
    return into_.back();
  }
  void add(const char* name, const Tensor& tensor) {
    if (tensor.empty() || tensor.dtype != DType::f32 || tensor.shape.elements() == 0) return;
    const Tensor here = reader_.here(tensor);
    const std::int64_t count = here.shape.elements();
    new_stats(name, here.shape.rank() < 2 ? 1 : count / here.dim(0)).values.add({here.f32(), static_cast<std::size_t>(count)});
  }
  void add_row(const CacheView& cache, const std::vector<std::int32_t>& table, std::int64_t position, ArgumentStats& stats) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(cache.row_bytes()));
    reader_.read(bytes.data(), cache.row(table.data(), position), cache.row_bytes());
    std::vector<float> values(static_cast<std::size_t>(cache.row_elements));
    read_row(cache, bytes.data(), 0, cache.row_elements, values.data());
    stats.values.add(values);
  }

  When when_;
  HostReader& reader_;
  std::vector<ArgumentStats>& into_;
  std::vector<std::vector<std::int32_t>> tables_;
  std::vector<std::int32_t> positions_;
};

void measure(const OpRun& run, When when, HostReader& reader, std::vector<ArgumentStats>& into) {
  std::visit([&](const auto* args) { visit(*args, Measure(when, reader, into)); }, run.args);
}

// The name of the weight that an op reads, if there is one: of experts that of the first.
struct WeightNames {
  std::string_view name;
  template <class T>
  void in(const char*, const T&) {}
  template <class T>
  void out(const char*, const T&) {}
  template <class T>
  void inout(const char*, const T&) {}
  void weight(const char*, const Weight& weight) { name = weight.name; }
  void weights(const char*, std::span<const Weight> weights) { name = weights.front().name; }
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}
};

// Ops that attention calls for some rows of a step at a time (model/blocks/attention_mla.cpp).
bool is_called_in_parts(std::string_view op) { return op == "latent_query" || op == "attend_latent" || op == "latent_value"; }

std::int64_t rows_of(const OpRun& run) {
  if (const auto* const* query = std::get_if<const LatentQueryArgs*>(&run.args)) return (*query)->q.dim(0);
  if (const auto* const* attend = std::get_if<const AttendLatentArgs*>(&run.args)) return (*attend)->q.dim(0);
  if (const auto* const* value = std::get_if<const LatentValueArgs*>(&run.args)) return (*value)->x.dim(0);
  return 0;
}

}  // namespace

std::vector<ArgumentStats> input_stats(const AnyArgs& args, HostReader& reader) {
  std::vector<ArgumentStats> stats;
  std::visit([&](const auto* one) { visit(*one, Measure(When::before, reader, stats)); }, args);
  return stats;
}

std::string CallName::short_text() const { return slot.empty() ? op : op + " " + slot; }

std::string CallName::text() const {
  return layer < 0 ? fmt::format("{}: {}", block, short_text()) : fmt::format("layer {}, {}: {}", layer, block, short_text());
}

const ArgumentStats* CallStats::bad(const std::vector<ArgumentStats>& arguments) {
  const auto found =
      std::find_if(arguments.begin(), arguments.end(), [](const ArgumentStats& argument) { return !argument.values.finite(); });
  return found == arguments.end() ? nullptr : &*found;
}

void StepProbe::begin_step() {
  looking_ = true;
  next_index_ = 0;
  calls_.clear();
  seen_.clear();
  rows_so_far_.clear();
}

CallName StepProbe::name_of(const OpRun& run) {
  CallName name{.layer = run.place.layer, .block = std::string(run.place.block), .op = std::string(run.op)};
  WeightNames weights;
  std::visit([&](const auto* args) { visit(*args, weights); }, run.args);
  const std::string_view weight = weights.name;
  name.slot = weight.substr(weight.find_last_of('.') + 1);
  if (is_called_in_parts(run.op)) name.slot.clear();
  if (!name.slot.empty() || is_called_in_parts(run.op)) return name;
  const std::int64_t count = ++seen_[fmt::format("{} {} {}", name.layer, name.block, name.op)];
  if (count > 1) name.slot = std::to_string(count);
  return name;
}

std::int64_t StepProbe::first_row_of(const OpRun& run, const CallName& name) {
  if (!is_called_in_parts(run.op)) return 0;
  std::int64_t& rows = rows_so_far_[fmt::format("{} {}", name.layer, name.op)];
  rows += rows_of(run);
  return rows - rows_of(run);
}

void StepProbe::before(const OpRun& run) {
  const std::int64_t index = next_index_++;
  passed_over_ = !looking_ || (run.place.layer >= 0 && run.place.layer < first_layer);
  if (passed_over_) return;
  if (memory_ != run.memory) reader_ = HostReader(run.memory, run.stream);
  memory_ = run.memory;
  const CallName name = name_of(run);
  pending_ = {.index = index, .name = name, .kernel = std::string(run.kernel), .first_row = first_row_of(run, name)};
  if (look_ == Look::both) measure(run, When::before, reader_, pending_.inputs);
  if (each_before) each_before(run, pending_.index, reader_);
}

void StepProbe::after(const OpRun& run, std::chrono::nanoseconds took) {
  if (passed_over_) return;
  pending_.took_us = std::chrono::duration<double, std::micro>(took).count();
  if (look_ != Look::none) measure(run, When::after, reader_, pending_.outputs);
  calls_.push_back(std::move(pending_));
  if (each) each(run, calls_.back(), reader_);
}

}  // namespace reckoner::trace
