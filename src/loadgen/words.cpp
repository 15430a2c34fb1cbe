#include "loadgen/words.h"

#include <array>
#include <string_view>

namespace reckoner::loadgen {
namespace {

// Short words that most vocabularies hold whole.
constexpr auto kWords = std::to_array<std::string_view>(
    {"able",    "about",   "above",   "acorn",    "across",   "actor",  "after",   "again",   "agent",  "air",    "alley",   "almond",
     "alone",   "along",   "amber",   "among",    "anchor",   "angle",  "ankle",   "apple",   "april",  "apron",  "arch",    "area",
     "arrow",   "artist",  "autumn",  "baker",    "balcony",  "bamboo", "band",    "barrel",  "basket", "beach",  "bell",    "bench",
     "berry",   "bird",    "blanket", "blue",     "boat",     "book",   "border",  "bottle",  "bowl",   "branch", "bread",   "brick",
     "bridge",  "bright",  "broom",   "brown",    "brush",    "bucket", "butter",  "button",  "cabin",  "cable",  "camel",   "camp",
     "candle",  "canvas",  "captain", "card",     "carpet",   "castle", "cellar",  "chain",   "chair",  "chalk",  "cheese",  "cherry",
     "circle",  "city",    "clay",    "clock",    "cloud",    "coast",  "coffee",  "cold",    "collar", "copper", "corner",  "cotton",
     "cousin",  "cradle",  "crane",   "creek",    "crown",    "cup",    "curtain", "daisy",   "dance",  "dawn",   "deep",    "desk",
     "diamond", "dinner",  "doctor",  "dog",      "donkey",   "door",   "dream",   "drum",    "duck",   "dust",   "eagle",   "early",
     "earth",   "east",    "echo",    "edge",     "eight",    "elbow",  "engine",  "evening", "fabric", "falcon", "family",  "farm",
     "feather", "fence",   "fern",    "ferry",    "field",    "finger", "fire",    "fish",    "flag",   "flame",  "flock",   "flour",
     "flower",  "fog",     "forest",  "fork",     "fountain", "fox",    "friend",  "frost",   "fruit",  "garden", "garlic",  "gate",
     "gentle",  "giant",   "ginger",  "glass",    "glove",    "goat",   "gold",    "goose",   "grain",  "grape",  "grass",   "green",
     "guest",   "guitar",  "hammer",  "harbor",   "harvest",  "hat",    "hazel",   "heavy",   "hill",   "honey",  "horse",   "hotel",
     "house",   "ice",     "island",  "ivory",    "jacket",   "jar",    "jewel",   "journey", "juice",  "jungle", "kettle",  "key",
     "king",    "kitchen", "kite",    "ladder",   "lake",     "lamp",   "lantern", "leaf",    "lemon",  "letter", "library", "light",
     "lily",    "lime",    "linen",   "lion",     "maple",    "marble", "market",  "meadow",  "melon",  "metal",  "milk",    "mirror",
     "moon",    "morning", "moss",    "mountain", "mouse",    "music",  "needle",  "nest",    "night",  "north",  "oak",     "ocean",
     "olive",   "onion",   "orange",  "orchard",  "oven",     "owl",    "paint",   "palm",    "paper",  "parrot", "path",    "peach",
     "pear",    "pebble",  "pencil",  "pepper",   "piano",    "pillow", "pine",    "planet",  "plate",  "plum",   "pocket",  "pond"});

}  // namespace

// The finaliser of SplitMix64, a bijection.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15 + number + 0x632BE59BD9B4E019;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::string random_text(std::int64_t count, std::uint64_t seed, std::uint64_t number) {
  Random random(mixed(seed, number));
  std::string text;
  for (std::uint64_t tag = random(), i = 0; i < 8; ++i, tag /= 26) text += static_cast<char>('a' + tag % 26);
  for (std::int64_t i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[random() % kWords.size()];
  }
  return text;
}

}  // namespace reckoner::loadgen
