// Text for prompts: random words, so that no tokenizer and no data set is needed.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace reckoner::loadgen {

using Random = std::mt19937_64;

// `count` words after a tag of letters that is different for each `number` (and seed), so that no two texts begin alike.
std::string random_text(std::int64_t count, std::uint64_t seed, std::uint64_t number);

// A well mixed number of both.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t number);

}  // namespace reckoner::loadgen
