// A model that was quantised here must still know everything: the pocket model, expanded to BF16 and quantised again.
#include <boost/json.hpp>
#include <deque>
#include <filesystem>
#include <fstream>

#include "convert/quantise.h"
#include "formats/safetensors.h"
#include "formats/scratch_folder.h"
#include "pocket_tasks.h"
#include "quant/format.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "models/pocket";

// A copy of the model with BF16 instead of NVFP4, in one file.
void write_as_bf16(const fs::path& out) {
  const std::unique_ptr<Model> model = must(open_model(kModel));
  std::map<std::string, const Weight*> quantised;
  for_each_rule(*model->family, model->config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model->config, [&](WeightPlace place) {
      const Weight& w = rule.matrix(model->weights, place);
      if (is_quantised(w.format)) quantised[std::string(w.name)] = &w;
    });
  });
  ASSERT_EQ(quantised.size(), 3u * 16 * 3);
  std::vector<NamedTensor> tensors;
  for (const CheckpointTensor& tensor : model->checkpoint->tensors()) {
    if (!quantised.contains(tensor.name.substr(0, tensor.name.rfind('.')))) tensors.push_back({tensor.name, tensor.tensor});
  }
  std::deque<std::vector<std::uint16_t>> memory;
  for (const auto& [name, w] : quantised) {
    std::vector<float> row(static_cast<std::size_t>(w->cols));
    std::vector<std::uint16_t>& values = memory.emplace_back();
    for (std::int64_t r = 0; r < w->rows; ++r) {
      info(w->format).dequantise(*w, r, 0, w->cols, row.data());
      for (const float value : row) values.push_back(f32_to_bf16(value));
    }
    tensors.push_back({name + ".weight", {reinterpret_cast<std::byte*>(values.data()), DType::bf16, {w->rows, w->cols}}});
  }
  fs::create_directories(out);
  ASSERT_TRUE(write_safetensors(out / "model.safetensors", tensors).ok());
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(fs::path(kModel) / name, out / name);
  std::ifstream text(fs::path(kModel) / "config.json");
  boost::json::value config = boost::json::parse(text);
  config.as_object().erase("quantization_config");
  std::ofstream(out / "config.json") << config;
}

TEST(QuantisedPocket, AnswersAllTasks) {
  const ScratchFolder scratch;
  ASSERT_NO_FATAL_FAILURE(write_as_bf16(scratch.path() / "bf16"));
  const fs::path out = scratch.path() / "out";
  ThreadPool pool(2);
  {
    const std::unique_ptr<Model> source = must(open_model(scratch.path() / "bf16"));
    const QuantisePlan plan = must(plan_quantisation(*source, {.format = QuantFormat::nvfp4}));
    ASSERT_TRUE(prepare_output(*source, plan, out).ok());
    must(quantise(*source, plan, out, pool, {}));
  }
  const std::unique_ptr<Model> model = must(open_model(out));
  const Status read = read_weights(*model, pool, {});
  ASSERT_TRUE(read.ok()) << read.error().message();
  const Tokenizer tokenizer = must(Tokenizer::load(out));
  expect_all_right({*model, tokenizer, pool}, read_tasks(), Precision::fast, detect_cpu());
}

}  // namespace
}  // namespace reckoner
