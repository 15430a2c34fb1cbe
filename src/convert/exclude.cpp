#include "convert/exclude.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

namespace reckoner {
namespace {

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

// Numbers by value, before names.
struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b) && a.size() != b.size()) return a.size() < b.size();
    return a < b;
  }
};

// The modules by the parts of their names.
struct Node {
  std::map<std::string, std::unique_ptr<Node>, NaturalOrder> children;
  bool is_module = false;
  bool quantised = false;  // it or something below it
};

void add(Node& root, std::string_view name, bool quantised) {
  Node* node = &root;
  node->quantised |= quantised;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    std::unique_ptr<Node>& child = node->children[std::string(name.substr(0, dot))];
    if (child == nullptr) child = std::make_unique<Node>();
    node = child.get();
    node->quantised |= quantised;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  node->is_module = true;
}

void collect(const Node& node, const std::string& name, std::vector<UnquantisedPart>& parts) {
  const bool whole = !node.quantised && !name.empty();
  if (whole && node.is_module) parts.push_back({name, true});
  if (whole && !node.children.empty()) parts.push_back({name, false});
  if (whole) return;
  for (const auto& [part, child] : node.children) collect(*child, name.empty() ? part : name + "." + part, parts);
}

}  // namespace

std::vector<UnquantisedPart> unquantised_parts(const std::vector<std::string>& quantised, const std::vector<std::string>& unquantised) {
  Node root;
  for (const std::string& name : quantised) add(root, name, true);
  for (const std::string& name : unquantised) add(root, name, false);
  std::vector<UnquantisedPart> parts;
  collect(root, "", parts);
  return parts;
}

// Behind a number the dot must stand: "model.layers.1*" would match layer 10 too.
std::string as_glob(const UnquantisedPart& part) {
  if (part.is_module) return part.name;
  return part.name + (is_number(std::string_view(part.name).substr(part.name.rfind('.') + 1)) ? ".*" : "*");
}

std::string as_expression(const UnquantisedPart& part) {
  if (part.is_module) return part.name;
  std::string text = "re:";
  for (const char character : part.name) {
    if (character == '.') text += '\\';
    text += character;
  }
  return text + "\\..*";
}

}  // namespace reckoner
