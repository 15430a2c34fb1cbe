// Which layers are dense or sparse, and which own an indexer: each is published in several spellings.
#include <fmt/format.h>

#include <algorithm>

#include "formats/config_reader.h"
#include "formats/model_config.h"

namespace reckoner {
namespace {

template <class Kind>
struct Word {
  std::string_view text;
  Kind kind;
};

// Reads one word a layer.
template <class Kind>
Result<std::vector<Kind>> read_words(const JsonNode& list, std::int64_t layers, std::initializer_list<Word<Kind>> words,
                                     std::string_view expected) {
  const std::vector<JsonNode> elements = TRY(list.as_array());
  if (static_cast<std::int64_t>(elements.size()) != layers)
    return list.error(fmt::format("expected {} entries (num_hidden_layers), found {}", layers, elements.size()));
  std::vector<Kind> kinds;
  for (const JsonNode& element : elements) {
    const std::string text = TRY(element.as_string());
    const auto word = std::find_if(words.begin(), words.end(), [&](const Word<Kind>& candidate) { return candidate.text == text; });
    if (word == words.end()) return element.unexpected(expected);
    kinds.push_back(word->kind);
  }
  return kinds;
}

// first_k_dense_replace dense layers, then every moe_layer_freq-th layer is sparse. Absent without first_k_dense_replace.
Result<std::optional<std::vector<MlpKind>>> mlp_from_counts(ConfigReader& reader, std::int64_t layers) {
  std::int64_t dense = 0;
  std::int64_t frequency = 1;
  const bool given = TRY(reader.field("first_k_dense_replace")).has_value();
  TRY(reader.read("first_k_dense_replace", dense, 0, layers));
  TRY(reader.read("moe_layer_freq", frequency, 1, layers));
  if (!given) return std::optional<std::vector<MlpKind>>{};
  std::vector<MlpKind> kinds;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    kinds.push_back(layer >= dense && layer % frequency == 0 ? MlpKind::sparse : MlpKind::dense);
  return std::optional(std::move(kinds));
}

Status read_mlp_kinds(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t layers = config.num_hidden_layers;
  const std::optional<std::vector<MlpKind>> counted = TRY(mlp_from_counts(reader, layers));
  if (const std::optional<JsonNode> list = TRY(reader.field("mlp_layer_types"))) {
    config.mlp_kinds =
        TRY(read_words<MlpKind>(*list, layers, {{"dense", MlpKind::dense}, {"sparse", MlpKind::sparse}}, "\"dense\" or \"sparse\""));
    if (!counted || !config.is_moe()) return {};
    const auto [here, there] = std::mismatch(config.mlp_kinds.begin(), config.mlp_kinds.end(), counted->begin());
    if (here == config.mlp_kinds.end()) return {};
    return list->error(fmt::format("contradicts first_k_dense_replace and moe_layer_freq: layer {} is {} here and {} there",
                                   here - config.mlp_kinds.begin(), *here == MlpKind::dense ? "dense" : "sparse",
                                   *there == MlpKind::dense ? "dense" : "sparse"),
                       "correct the wrong one, or remove it");
  }
  if (!counted && config.is_moe())
    return reader.object().error("neither mlp_layer_types nor first_k_dense_replace says which layers are dense",
                                 "add one of the two fields");
  const auto all_dense = static_cast<std::size_t>(layers);
  config.mlp_kinds = counted && config.is_moe() ? *counted : std::vector<MlpKind>(all_dense, MlpKind::dense);
  return {};
}

// index_topk_pattern: "FSSF", or a list of words.
Result<std::vector<IndexerKind>> indexers_from_pattern(const JsonNode& node, std::int64_t layers) {
  if (!node.is_string())
    return read_words<IndexerKind>(
        node, layers, {{"F", IndexerKind::full}, {"S", IndexerKind::shared}, {"full", IndexerKind::full}, {"shared", IndexerKind::shared}},
        "\"F\" or \"S\"");
  const std::string pattern = TRY(node.as_string());
  if (static_cast<std::int64_t>(pattern.size()) != layers)
    return node.error(fmt::format("expected {} letters (num_hidden_layers), found {}", layers, pattern.size()));
  std::vector<IndexerKind> kinds;
  for (const char letter : pattern) {
    if (letter != 'F' && letter != 'S') return node.unexpected("only the letters F and S");
    kinds.push_back(letter == 'F' ? IndexerKind::full : IndexerKind::shared);
  }
  return kinds;
}

std::vector<IndexerKind> indexers_from_frequency(std::int64_t frequency, std::int64_t offset, std::int64_t layers) {
  std::vector<IndexerKind> kinds;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    kinds.push_back(std::max<std::int64_t>(layer - offset + 1, 0) % frequency == 0 ? IndexerKind::full : IndexerKind::shared);
  return kinds;
}

struct IndexerSpelling {
  std::string source;
  std::vector<IndexerKind> kinds;
};

// All spellings present, the one that counts first.
Result<std::vector<IndexerSpelling>> indexer_spellings(ConfigReader& reader, std::int64_t layers) {
  std::vector<IndexerSpelling> spellings;
  if (const std::optional<JsonNode> list = TRY(reader.field("indexer_types"))) {
    auto kinds = TRY(
        read_words<IndexerKind>(*list, layers, {{"full", IndexerKind::full}, {"shared", IndexerKind::shared}}, "\"full\" or \"shared\""));
    spellings.push_back({"indexer_types", std::move(kinds)});
  }
  if (const std::optional<JsonNode> pattern = TRY(reader.field("index_topk_pattern"))) {
    auto kinds = TRY(indexers_from_pattern(*pattern, layers));
    spellings.push_back({"index_topk_pattern", std::move(kinds)});
  }
  std::int64_t frequency = 1;
  std::int64_t offset = 2;  // what the published models' code assumes when only the frequency is given
  const bool given = TRY(reader.field("index_topk_freq")).has_value();
  TRY(reader.read("index_topk_freq", frequency, 0, kMaxLayers));
  TRY(reader.read("index_skip_topk_offset", offset, 0, kMaxLayers));
  if (given)
    spellings.push_back({fmt::format("index_topk_freq {}, index_skip_topk_offset {}", frequency, offset),
                         indexers_from_frequency(std::max<std::int64_t>(frequency, 1), offset, layers)});
  return spellings;
}

std::string indexer_summary(const std::vector<IndexerKind>& kinds) {
  const auto full = std::count(kinds.begin(), kinds.end(), IndexerKind::full);
  return fmt::format("{} full, {} shared", full, static_cast<std::int64_t>(kinds.size()) - full);
}

Status read_indexer_kinds(ConfigReader& reader, ModelConfig& config) {
  const std::vector<IndexerSpelling> spellings = TRY(indexer_spellings(reader, config.num_hidden_layers));
  if (!config.is_sparse_attention()) return {};
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  config.indexer_kinds = spellings.empty() ? std::vector<IndexerKind>(layers, IndexerKind::full) : spellings.front().kinds;
  const std::string source = spellings.empty() ? "default" : spellings.front().source;
  if (config.indexer_kinds.front() != IndexerKind::full)
    return reader.object().error(fmt::format("{}: layer 0 is shared, but there is no layer before it to share with", source),
                                 "correct the file so that layer 0 is full, or download it again");
  std::string note = spellings.empty() ? "the file does not say; every layer owns an indexer" : "";
  for (const IndexerSpelling& other : spellings) {
    if (other.kinds == config.indexer_kinds) continue;
    note += fmt::format("{}{} says otherwise ({}) and is overruled", note.empty() ? "" : "; ", other.source, indexer_summary(other.kinds));
  }
  config.settings.push_back({"indexer layers", indexer_summary(config.indexer_kinds), source, note});
  return {};
}

}  // namespace

Status read_layer_kinds(ConfigReader& reader, ModelConfig& config) {
  TRY(read_mlp_kinds(reader, config));
  return read_indexer_kinds(reader, config);
}

}  // namespace reckoner
