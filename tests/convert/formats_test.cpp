// Every format on every family: the output loads, its kernels compute what its bytes mean, its metadata says what its tensors are.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "convert_support.h"
#include "diagnose/verify/dequantised.h"
#include "kernels/cpu/catalogue.h"
#include "quant/format.h"

namespace reckoner {
namespace {

using Case = std::tuple<const char*, QuantFormat>;

class QuantiseFormats : public testing::TestWithParam<Case> {
 protected:
  std::filesystem::path source() const { return std::filesystem::path("tests/golden") / std::get<0>(GetParam()); }
  QuantFormat format() const { return std::get<1>(GetParam()); }
};

class QuantiseMetadata : public testing::TestWithParam<QuantFormat> {};

constexpr QuantFormat kFormats[] = {QuantFormat::nvfp4, QuantFormat::fp8_block, QuantFormat::fp8_channel, QuantFormat::int4_g32,
                                    QuantFormat::mxfp4};

bool is_quantisable(WeightRole role) {
  return role == WeightRole::expert || role == WeightRole::shared_expert || role == WeightRole::mlp || role == WeightRole::attention ||
         role == WeightRole::indexer;
}

std::vector<float> row_of(const Weight& w, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(w.cols));
  info(w.format).dequantise(w, row, 0, w.cols, values.data());
  return values;
}

// An element loses at most this share of the largest magnitude of its matrix: half of the widest step, and what rounding the scale adds.
double loss_bound(QuantFormat format) {
  switch (format) {
    case QuantFormat::nvfp4:
      return (1.0 / 6) * (1 + 6.0 / 16);
    case QuantFormat::mxfp4:
      return 2.0 / 6;
    case QuantFormat::int4_g32:
      return 0.5 / 7 + 7 * 0x1p-9;
    default:
      return 16.0 / 448;
  }
}

// The kernels of a format against plain ones on the same weights in float.
void expect_computes_what_its_bytes_mean(const Model& model, ThreadPool& pool) {
  const std::unique_ptr<Model> reference_model = must(dequantised(model, pool));
  const StepLimits limits{.max_tokens = 128, .max_samples = 128, .max_context = 256};
  StepRunner plain(*reference_model, cpu_catalogue(), limited_to(detect_cpu(), "scalar"), pool, Precision::exact, limits);
  const ReferenceCase reference = record_reference(plain, "random", random_tokens(model.config, 1));
  StepRunner runner(model, cpu_catalogue(), detect_cpu(), pool, Precision::exact, limits);
  for (const VerifyCase& result : verify(runner, {reference}, {0, 37})) {
    for (const VerifyRun& run : result.runs) {
      EXPECT_EQ(run.failure, "");
      EXPECT_GT(run.argmax_checked, 90);
    }
  }
}

TEST_P(QuantiseFormats, LoadsComputesAndSaysWhatItIs) {
  const ScratchFolder scratch;
  const std::filesystem::path out = scratch.path() / "out";
  // Small files, so that there are several of them.
  quantise_folder(source(), out, {.format = format(), .modules = ModuleSet::all, .shard_bytes = 100'000});
  const std::unique_ptr<Model> original = must(open_model(source()));
  const std::unique_ptr<Model> model = must(open_model(out));
  EXPECT_GT(model->checkpoint->files().size(), 1u);
  for (const std::string& note : model->notes) EXPECT_EQ(note.find("excludes"), std::string::npos) << note;
  ThreadPool pool(2);
  must(read_weights(*model, pool, {}));

  const ExcludeList excluded_modules(out);
  std::map<std::string, const Weight*> originals;
  for_each_matrix(*original, [&](const WeightRule&, const Weight& w) { originals[std::string(w.name)] = &w; });
  std::int64_t quantised = 0;
  for_each_matrix(*model, [&](const WeightRule& rule, const Weight& w) {
    const std::string name(w.name);
    const Weight& before = *originals.at(name);
    const bool expected = is_quantisable(rule.role) && w.cols % info(format()).cols_multiple == 0;
    EXPECT_EQ(w.format, expected ? format() : QuantFormat::bf16) << name;
    EXPECT_EQ(excluded_modules.contains(name), !expected) << name;
    quantised += expected ? 1 : 0;
    float largest = 0;
    for (std::int64_t row = 0; row < w.rows; ++row) {
      for (const float value : row_of(before, row)) largest = std::max(largest, std::fabs(value));
    }
    const double bound = expected ? loss_bound(format()) * (1 + 1e-5) * largest : 0;
    for (std::int64_t row = 0; row < w.rows; ++row) {
      const std::vector<float> now = row_of(w, row);
      const std::vector<float> then = row_of(before, row);
      for (std::size_t i = 0; i < now.size(); ++i) ASSERT_LE(std::fabs(now[i] - then[i]), bound) << name << " row " << row;
    }
  });
  EXPECT_GT(quantised, 0);
  expect_computes_what_its_bytes_mean(*model, pool);
}

// The terms of each kind of metadata, as published checkpoints have them.
TEST_P(QuantiseMetadata, IsThatOfPublishedCheckpoints) {
  const QuantFormat format = GetParam();
  const std::filesystem::path source = "tests/golden/glm_moe_dsa";
  const ScratchFolder scratch;
  const std::filesystem::path out = scratch.path() / "out";
  quantise_folder(source, out, {.format = format, .modules = ModuleSet::experts});
  const boost::json::value config = json_of(out / "config.json");
  const boost::json::value& quantisation = config.at("quantization_config");
  const std::string method = quantisation.at("quant_method").as_string().c_str();
  const QuantMetadata read = must(read_quant_metadata(out));
  EXPECT_EQ(read.method, method);
  const bool modelopt = format == QuantFormat::nvfp4 || format == QuantFormat::mxfp4;
  EXPECT_EQ(std::filesystem::exists(out / "hf_quant_config.json"), modelopt);
  if (modelopt) {
    EXPECT_EQ(method, "modelopt");
    EXPECT_EQ(read.algorithm, format == QuantFormat::nvfp4 ? "NVFP4" : "MXFP4");
    EXPECT_EQ(read.group_size, format == QuantFormat::nvfp4 ? 16 : 32);
    EXPECT_TRUE(read.producer.starts_with("reckoner ")) << read.producer;
    for (const Setting& setting : read.settings) EXPECT_EQ(setting.note, "") << setting.name;  // both files agree
    EXPECT_EQ(ExcludeList(out).entries(), read.exclude);
  } else if (format == QuantFormat::fp8_block) {
    EXPECT_EQ(method, "fp8");
    EXPECT_EQ(quantisation.at("fmt"), "e4m3");
    EXPECT_EQ(quantisation.at("activation_scheme"), "dynamic");
    EXPECT_EQ(quantisation.at("weight_block_size"), (boost::json::array{128, 128}));
  } else {
    const bool int4 = format == QuantFormat::int4_g32;
    EXPECT_EQ(method, "compressed-tensors");
    EXPECT_EQ(quantisation.at("format"), int4 ? "pack-quantized" : "float-quantized");
    const boost::json::value& weights = quantisation.at("config_groups").at("group_0").at("weights");
    EXPECT_EQ(weights.at("strategy"), int4 ? "group" : "channel");
    EXPECT_EQ(weights.at("num_bits"), int4 ? 4 : 8);
    EXPECT_EQ(weights.at("type"), int4 ? "int" : "float");
    EXPECT_EQ(weights.at("symmetric"), true);
  }
  // Everything else of config.json is as it was, in its order.
  boost::json::object rest;
  for (const auto& member : config.as_object()) {
    if (member.key() != "quantization_config") rest.insert(member);
  }
  EXPECT_EQ(boost::json::serialize(rest), boost::json::serialize(json_of(source / "config.json")));
}

std::string identifier(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, QuantiseFormats,
                         testing::Combine(testing::Values("glm_moe_dsa", "glm_moe_dsa_shared", "glm_moe_dsa_real_latent", "deepseek_v32",
                                                          "deepseek_v3_groups", "kimi_k2", "glm4_moe_lite", "glm4_moe"),
                                          testing::ValuesIn(kFormats)),
                         [](const testing::TestParamInfo<Case>& test) {
                           return identifier(std::string(std::get<0>(test.param)) + "_" +
                                             std::string(quantise_name(std::get<1>(test.param))));
                         });

INSTANTIATE_TEST_SUITE_P(, QuantiseMetadata, testing::ValuesIn(kFormats), [](const testing::TestParamInfo<QuantFormat>& test) {
  return identifier(std::string(quantise_name(test.param)));
});

}  // namespace
}  // namespace reckoner
