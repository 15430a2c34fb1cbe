// MTP, rope, head, indexer, tokens and templates.
#include <fmt/format.h>

#include "lint_case.h"

namespace reckoner {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kRope = R"("rope_parameters": {
    "rope_theta": 1000000.0,
    "rope_type": "default"
  })";

void drop_text(const ModelCopy& m) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) m.remove(name);
}

void set_rope(const ModelCopy& m, const char* text) { m.replace(kConfig, kRope, text); }

// The pocket model without its last layer.
void drop_mtp(const ModelCopy& m) {
  std::string index = m.read(kIndex);
  constexpr std::string_view kStart = "\"model.layers.4.";
  for (std::size_t at = index.find(kStart); at != std::string::npos; at = index.find(kStart)) {
    const std::size_t end = index.find('\n', at);
    const std::string line = index.substr(at, end - at);
    if (line.find(kShard2) != std::string::npos) m.drop_tensor(kShard2, line.substr(1, line.find('"', 1) - 1));
    index.erase(at, end - at);
  }
  m.write(kIndex, index.erase(index.find_last_of(','), 1));
  m.remove(kShard3);
}

}  // namespace

std::span<const LintCase> model_cases() {
  static const std::vector<LintCase> cases = {
      {"Untouched", Base::pocket, [](const ModelCopy&) {}, {"mtp-other-format: unquantised, NVFP4", "head-dim-trap: 64, 96 wide"}},
      // Rope in its dialects.
      {"RopeAtTheTop", Base::pocket, [](const ModelCopy& m) { set_rope(m, R"("rope_theta": 1000000)"); }, {}},
      {"RopeNested", Base::pocket, [](const ModelCopy&) {}, {"rope-theta-nested: rope_parameters.rope_theta, 1000000"}},
      {"RopeConflict",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kConfig, R"("vocab_size": 4096,)", R"("vocab_size": 4096, "rope_theta": 10000,)"); },
       {"rope-theta-conflict: field 'rope_theta', 10000, 1000000"}},
      {"RopeThetaMissing",
       Base::pocket,
       [](const ModelCopy& m) { set_rope(m, R"("rope_parameters": {"rope_type": "default"})"); },
       {"rope-theta-missing"}},
      {"YarnIncomplete",
       Base::pocket,
       [](const ModelCopy& m) { set_rope(m, R"("rope_theta": 1000000, "rope_scaling": {"type": "yarn", "factor": 4})"); },
       {"rope-yarn-incomplete: rope_scaling.original_max_position_embeddings, missing"}},
      {"DefaultWithFactor",
       Base::pocket,
       [](const ModelCopy& m) { set_rope(m, R"("rope_theta": 1000000, "rope_scaling": {"type": "default", "factor": 4})"); },
       {"rope-default-with-factor: rope_scaling.factor, 4"}},
      // Which layers have an indexer.
      {"IndexerFieldsConflict",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kConfig, R"("index_topk": 256,)",
                   R"("index_topk": 256, "indexer_types": ["full", "full", "full", "full"], "index_topk_pattern": "FSFS",)");
       },
       {"indexer-fields-conflict: indexer_types, index_topk_pattern says otherwise"}},
      {"IndexerFrequencyConflicts",
       Base::pocket,
       [](const ModelCopy& m) {
         m.replace(kConfig, R"("index_topk": 256,)",
                   R"("index_topk": 256, "index_topk_pattern": "FFFF", "index_topk_freq": 4, "index_skip_topk_offset": 3,)");
       },
       {"indexer-fields-conflict: index_topk_freq 4, says otherwise"}},
      {"IndexerInASharedLayer",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kConfig, R"("index_topk": 256,)", R"("index_topk": 256, "index_topk_pattern": "FSFF",)"); },
       {"indexer-in-shared-layer: layer 1"}},
      {"IndexerMissing",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         for (const char* part : {"wq_b.weight", "wk.weight", "weights_proj.weight", "k_norm.weight", "k_norm.bias"})
           m.drop_tensor(kFile, fmt::format("model.layers.2.self_attn.indexer.{}", part));
       },
       {"indexer-missing: layer 2"}},
      // The MTP layer.
      {"MtpAbsent", Base::pocket, drop_mtp, {"mtp-absent: num_nextn_predict_layers, layer 4", "total-size-off"}},
      {"MtpWithoutItsProjection",
       Base::pocket,
       [](const ModelCopy& m) {
         m.drop_tensor(kShard3, "model.layers.4.eh_proj.weight");
         m.replace(kIndex, "  \"model.layers.4.eh_proj.weight\": \"model-00003-of-00003.safetensors\",\n", "");
       },
       {"mtp-partial: model.layers.4.eh_proj.weight, missing"}},
      {"MtpIncomplete",
       Base::pocket,
       [](const ModelCopy& m) {
         m.drop_tensor(kShard3, "model.layers.4.enorm.weight");
         m.replace(kIndex, "  \"model.layers.4.enorm.weight\": \"model-00003-of-00003.safetensors\",\n", "");
       },
       {"mtp-incomplete: model.layers.4.enorm.weight, missing"}},
      {"MtpUndeclared",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kConfig, R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": 0)"); },
       {"mtp-undeclared: layer 4"}},
      {"MtpInAFileOfItsOwn",
       Base::pocket,
       [](const ModelCopy& m) {
         m.move(kShard3, "mtp.safetensors");
         std::string index = m.read(kIndex);
         for (std::size_t at = index.find(kShard3); at != std::string::npos; at = index.find(kShard3))
           index.replace(at, std::string(kShard3).size(), "mtp.safetensors");
         m.write(kIndex, index);
       },
       {"mtp-other-file: mtp.safetensors, named by the index"}},
      // The head.
      {"HeadMissing",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.drop_tensor(kFile, "lm_head.weight");
       },
       {"head-missing: lm_head.weight"}},
      {"TiedHeadPresent",
       Base::bf16,
       [](const ModelCopy& m) {
         drop_text(m);
         m.replace(kConfig, R"("tie_word_embeddings": false)", R"("tie_word_embeddings": true)");
       },
       {"tied-head-present: lm_head.weight, BF16 [320, 64]"}},
      // Tokens.
      {"EosDiffers",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kGeneration, "4032,\n    4039,\n    4041", "4032, 4039"); },
       {"eos-differs: config.json says 4032, generation_config.json"}},
      {"EosOfTheTokenizerUnlisted",
       Base::pocket,
       [](const ModelCopy& m) { m.replace("tokenizer_config.json", R"("eos_token": "<|endoftext|>")", R"("eos_token": "<|system|>")"); },
       {"eos-token-unlisted: <|system|>"}},
      {"EosBeyondVocab",
       Base::pocket,
       [](const ModelCopy& m) { m.replace(kGeneration, "4041", "5000"); },
       {"eos-beyond-vocab: 5000, vocab_size is 4096", "eos-differs: 5000"}},
      {"VocabExceedsEmbedding", Base::bf16, [](const ModelCopy&) {}, {"vocab-exceeds-embedding: 320 rows", "eos-token-unlisted"}},
      {"GenerationConfigBroken",
       Base::pocket,
       [](const ModelCopy& m) { m.write(kGeneration, "{"); },
       {"config-unreadable: generation_config.json"}},
      {"TokenizerMissing", Base::pocket, drop_text, {"tokenizer-missing"}},
      {"TokenizerBroken",
       Base::pocket,
       [](const ModelCopy& m) { m.write("tokenizer.json", "{\"model\": 1}"); },
       {"tokenizer-unreadable: tokenizer.json"}},
      {"TemplateMissing", Base::pocket, [](const ModelCopy& m) { m.remove("chat_template.jinja"); }, {"chat-template-missing"}},
      {"TemplateFails",
       Base::pocket,
       [](const ModelCopy& m) { m.write("chat_template.jinja", "a\nb\n{{ raise_exception('no systems') }}\n"); },
       {"chat-template-fails: no systems, chat_template.jinja:3"}},
      {"TemplateFailsWithTools",
       Base::pocket,
       [](const ModelCopy& m) {
         m.write("chat_template.jinja", "x\n{% if tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages[0].content }}");
       },
       {"chat-template-fails-with-tools: no tools, chat_template.jinja:2"}},
  };
  return cases;
}

}  // namespace reckoner
