#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <vector>

namespace reckoner {

void accept_only(CLI::Option* option, std::initializer_list<const char*> values) {
  const std::vector<std::string> allowed(values.begin(), values.end());
  option->check(CLI::Validator(
      [allowed](std::string& value) {
        if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return std::string();
        return fmt::format("expected one of {}, found '{}'", fmt::join(allowed, ", "), value);
      },
      ""));
}

void accept_range(CLI::Option* option, std::int64_t low, std::int64_t high) {
  option->option_text("N");
  option->check(CLI::Validator(
      [low, high](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return std::string();
        return fmt::format("expected a whole number from {} to {}, found '{}'", low, high, text);
      },
      ""));
}

void add_machine_options(CLI::App& app, MachineOptions& options) {
  accept_range(app.add_option("--threads", options.threads, "Threads (default: the cores that may be used)")->group("Machine"), 1, 1024);
  accept_only(app.add_option("--precision", options.precision,
                             fmt::format("exact: all in float; fast: kernels may round to BF16\n(default: {})", options.precision))
                  ->option_text("exact|fast")
                  ->group("Machine"),
              {"exact", "fast"});
  accept_only(app.add_option("--kernels", options.kernels,
                             "What kernels may use at most: avx512, avx2, or scalar (the\nplain references, very slow) (default: auto)")
                  ->option_text("SET")
                  ->group("Machine"),
              {"auto", "avx512", "avx2", "scalar"});
  accept_only(app.add_option("--kv-cache-dtype", options.cache_type,
                             "What the KV cache is kept in; auto: float in exact,\nbf16 in fast (default: auto)")
                  ->option_text("auto|bf16|fp8")
                  ->group("Machine"),
              {"auto", "bf16", "fp8"});
  app.add_option("--accept", options.accept, "Serve in spite of this error of `reckoner lint`; may be\nrepeated")
      ->option_text("ID")
      ->allow_extra_args(false)
      ->group("Machine");
}

void add_device_options(CLI::App& app, MachineOptions& options) {
  options.device = "auto";
  app.add_option("--device", options.device,
                 "Where to compute; auto: on the first GPU if the CUDA backend\nis here and the model fits (default: auto)")
      ->option_text("auto|cpu|cuda[:N]")
      ->group("Machine")
      ->check(CLI::Validator(
          [](std::string& value) {
            if (value == "auto" || value == "cpu" || value == "cuda") return std::string();
            const std::string number = value.starts_with("cuda:") ? value.substr(5) : "";
            const bool digits = !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
            return digits ? std::string() : fmt::format("expected auto, cpu, cuda or cuda:N, found '{}'", value);
          },
          ""));
  accept_range(app.add_option("--tp", options.ranks,
                              "Ranks that divide the model (tensor parallel): a GPU each,\nor parts of the processor (default: 1)")
                   ->group("Machine"),
               1, 64);
  accept_only(app.add_option("--cuda-graphs", options.graphs, "Record steps of a few tokens on a GPU and replay them\n(default: on)")
                  ->option_text("on|off")
                  ->group("Machine"),
              {"on", "off"});
  add_admission_options(app, options);
}

void add_admission_options(CLI::App& app, MachineOptions& options) {
  options.admission = "on";
  accept_only(app.add_option("--admission", options.admission,
                             "Compare each kernel with its reference on this machine before\nit serves; what passed is remembered; "
                             "again: forget that\n(default: on)")
                  ->option_text("on|off|again")
                  ->group("Machine"),
              {"on", "off", "again"});
  add_admission_limit(app, options);
}

void add_admission_limit(CLI::App& app, MachineOptions& options) {
  accept_range(app.add_option("--admission-limit", options.admission_limit_s)->group(""), 1, 3600);
}

KvCacheType cache_type_from(const std::string& name) {
  return name == "fp8" ? KvCacheType::fp8 : name == "bf16" ? KvCacheType::bf16 : KvCacheType::automatic;
}

void add_context_option(CLI::App& app, LimitOptions& options) {
  accept_range(app.add_option("--context", options.context,
                              "Tokens of prompt and answer together (default: what the\nmodel and half of the free memory allow)")
                   ->group("Machine"),
               1, std::int64_t{1} << 30);
}

void add_model_argument(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model, "A model folder, or a repository name in the Hugging Face cache")->required()->option_text(" ");
}

}  // namespace reckoner
