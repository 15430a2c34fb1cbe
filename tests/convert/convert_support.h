// What the tests of quantising share.
#pragma once

#include <gtest/gtest.h>
#include <regex.h>

#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "convert/quantise.h"
#include "formats/quant_metadata.h"
#include "formats/scratch_folder.h"

namespace reckoner {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}

// What `reckoner quantize` does.
inline QuantiseReport quantise_folder(const std::filesystem::path& from, const std::filesystem::path& to, const QuantiseOptions& options,
                                      const QuantiseEvents& events = {}, int threads = 2) {
  const std::unique_ptr<Model> model = must(open_model(from));
  const QuantisePlan plan = must(plan_quantisation(*model, options));
  must(prepare_output(*model, plan, to));
  ThreadPool pool(threads);
  return must(quantise(*model, plan, to, pool, events));
}

inline std::string text_of(const std::filesystem::path& path) { return must(read_text_file(path, std::int64_t{1} << 30)); }
inline boost::json::value json_of(const std::filesystem::path& path) { return boost::json::parse(text_of(path)); }

// Calls visit(rule, weight) for each matrix of a model.
template <class Visit>
void for_each_matrix(const Model& model, Visit&& visit) {
  auto& weights = const_cast<ModelWeights&>(model.weights);
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model.config, [&](WeightPlace place) { visit(rule, static_cast<const Weight&>(rule.matrix(weights, place))); });
  });
}

// Whether the metadata of a folder says that a module is not quantised, by the rules of each kind: globs over whole names (ModelOpt), whole
// names (fp8), whole names or expressions that match the start (compressed-tensors).
class ExcludeList {
 public:
  explicit ExcludeList(const std::filesystem::path& folder) {
    const boost::json::value config = json_of(folder / "config.json");
    const boost::json::object& quantisation = config.at("quantization_config").as_object();
    method_ = quantisation.at("quant_method").as_string().c_str();
    for (const auto& entry : quantisation.at(method_ == "fp8" ? "modules_to_not_convert" : "ignore").as_array())
      entries_.emplace_back(entry.as_string().c_str());
  }
  const std::string& method() const { return method_; }
  const std::vector<std::string>& entries() const { return entries_; }
  bool contains(const std::string& module) const {
    for (const std::string& entry : entries_) {
      if (entry == module) return true;
      if (method_ == "modelopt" && glob_matches(entry, module)) return true;
      if (method_ != "compressed-tensors" || !entry.starts_with("re:")) continue;
      if (matches_start(entry.substr(3), module)) return true;
    }
    return false;
  }

 private:
  static bool matches_start(const std::string& expression, const std::string& text) {
    regex_t compiled;
    if (regcomp(&compiled, ("^(" + expression + ")").c_str(), REG_EXTENDED | REG_NOSUB) != 0) throw std::runtime_error(expression);
    const bool matches = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&compiled);
    return matches;
  }

  std::string method_;
  std::vector<std::string> entries_;
};

}  // namespace reckoner
