#include "diagnose/admission/job.h"

#include <boost/json.hpp>

namespace reckoner::admission {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMost = std::int64_t{1} << 40;

struct Field {
  const char* name;
  std::int64_t Shapes::*value;
};
constexpr Field kFields[] = {{"hidden", &Shapes::hidden},
                             {"heads", &Shapes::heads},
                             {"latent", &Shapes::latent},
                             {"rope", &Shapes::rope},
                             {"nope", &Shapes::nope},
                             {"value", &Shapes::value},
                             {"index_heads", &Shapes::index_heads},
                             {"index_dim", &Shapes::index_dim},
                             {"index_top_k", &Shapes::index_top_k},
                             {"kv_heads", &Shapes::kv_heads},
                             {"head_dim", &Shapes::head_dim},
                             {"experts", &Shapes::experts},
                             {"top_k", &Shapes::top_k},
                             {"groups", &Shapes::groups},
                             {"top_groups", &Shapes::top_groups}};

json::object object_of(const Item& item) { return {{"op", item.op}, {"kernel", item.kernel}, {"key", item.key.index()}}; }

json::object object_of(const Shapes& shapes) {
  json::object object;
  for (const Field& field : kFields) object[field.name] = shapes.*field.value;
  object["widths"] = json::array(shapes.widths.begin(), shapes.widths.end());
  object["cache"] = static_cast<int>(shapes.cache);
  return object;
}

Result<std::int64_t> number(const JsonNode& object, const char* name, std::int64_t low, std::int64_t high) {
  const JsonNode node = TRY(object.required(name));
  return node.as_int64(low, high);
}

Result<std::string> text(const JsonNode& object, const char* name) {
  const JsonNode node = TRY(object.required(name));
  return node.as_string();
}

Result<Item> item_of(const JsonNode& object) {
  Item item;
  item.op = TRY(text(object, "op"));
  item.kernel = TRY(text(object, "kernel"));
  const std::int64_t index = TRY(number(object, "key", 0, Key::kCount - 1));
  item.key = {.precision = static_cast<Precision>(index % 2), .format = static_cast<QuantFormat>(index / 2)};
  return item;
}

Result<Shapes> shapes_of(const JsonNode& object) {
  Shapes shapes;
  for (const Field& field : kFields) shapes.*field.value = TRY(number(object, field.name, 0, kMost));
  const JsonNode widths = TRY(object.required("widths"));
  const std::vector<JsonNode> list = TRY(widths.as_array());
  shapes.widths.clear();
  for (const JsonNode& width : list) {
    const std::int64_t value = TRY(width.as_int64(1, kMost));
    shapes.widths.push_back(value);
  }
  const std::int64_t cache = TRY(number(object, "cache", 0, 255));
  shapes.cache = static_cast<DType>(cache);
  return shapes;
}

std::string line_of(const json::object& object) { return json::serialize(object) + "\n"; }

}  // namespace

std::string to_text(const Shapes& shapes) { return json::serialize(object_of(shapes)); }

std::string to_json(const Job& job) {
  json::array items;
  for (const Item& item : job.items) items.push_back(object_of(item));
  return json::serialize(
      json::object{{"device", job.device}, {"threads", job.threads}, {"shapes", object_of(job.shapes)}, {"items", std::move(items)}});
}

Result<Job> parse_job(std::string_view input) {
  const JsonDocument document = TRY(parse_json(input, "admission job"));
  const JsonNode root = document.root();
  Job job;
  job.device = TRY(text(root, "device"));
  const std::int64_t threads = TRY(number(root, "threads", 1, 1024));
  job.threads = static_cast<int>(threads);
  const JsonNode shapes = TRY(root.required("shapes"));
  job.shapes = TRY(shapes_of(shapes));
  const JsonNode items = TRY(root.required("items"));
  const std::vector<JsonNode> list = TRY(items.as_array());
  for (const JsonNode& node : list) {
    Item item = TRY(item_of(node));
    job.items.push_back(std::move(item));
  }
  return job;
}

std::string begin_line(const Item& item) {
  json::object object = object_of(item);
  object["begins"] = true;
  return line_of(object);
}

std::string outcome_line(const Outcome& outcome) {
  json::object object = object_of(outcome.item);
  object["passed"] = outcome.passed;
  object["worst"] = outcome.worst;
  object["reason"] = outcome.reason;
  return line_of(object);
}

Result<std::variant<Item, Outcome>> parse_line(std::string_view line) {
  const JsonDocument document = TRY(parse_json(line, "admission"));
  const JsonNode root = document.root();
  Item item = TRY(item_of(root));
  const std::optional<JsonNode> begins = TRY(root.optional("begins"));
  if (begins) return std::variant<Item, Outcome>(std::move(item));
  Outcome outcome{.item = std::move(item)};
  const JsonNode passed = TRY(root.required("passed"));
  outcome.passed = TRY(passed.as_bool());
  const JsonNode worst = TRY(root.required("worst"));
  outcome.worst = TRY(worst.as_float());
  outcome.reason = TRY(text(root, "reason"));
  return std::variant<Item, Outcome>(std::move(outcome));
}

}  // namespace reckoner::admission
