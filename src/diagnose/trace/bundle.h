// Bundle: one call of an op in a file, so that anybody can run it again: a .safetensors file with what the op read, what it wrote, and in
// its metadata what it was.
//
//   <argument>         a tensor that the op reads, as it was before
//   <weight>.data, <weight>.scales, experts.<n>.data, ...   bytes of weights; only of experts that have rows
//   places.positions, places.table   where tokens stand, and their page tables
//   <cache>            [pages, bytes] the rows of this kind in the pages of those tables
//   seen.<output>      what the kernel left there (of a cache: all of it)
// and metadata "reckoner.bundle": JSON with version, op, scalars, weights, caches, outputs, shared (arguments that share memory), about.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "diagnose/trace/capture.h"
#include "formats/safetensors.h"

namespace reckoner::trace {

template <class... Args>
using CapturedOneOf = std::variant<Captured<Args>...>;
using AnyCaptured = ForEachOp<CapturedOneOf>;

// What a bundle says of itself, in words: "model", "device", "kernel", "layer", "cause", ...
using BundleAbout = std::map<std::string, std::string>;

struct BundleLimits {
  std::int64_t bytes = std::int64_t{256} << 20;
  // Of a linear layer whose weight is too large (a head over a vocabulary), only the outputs around this one are kept.
  std::int64_t column = 0;
};

// A bundle as the content of a file. The tensors point into the captured calls and into `memory`.
struct PackedBundle {
  std::vector<NamedTensor> tensors;
  SafetensorsMetadata metadata;
  std::vector<std::shared_ptr<void>> memory;
};
PackedBundle pack_bundle(const AnyCaptured& before, const AnyCaptured& after, const BundleAbout& about, const BundleLimits& limits = {});

// `before`: what the op read; `after`: the same arguments when it had run. Errors: larger than the limit, and what write_safetensors says.
Status write_bundle(const std::filesystem::path& path, const AnyCaptured& before, const AnyCaptured& after, const BundleAbout& about,
                    const BundleLimits& limits = {});

struct Bundle {
  AnyCaptured before;
  AnyCaptured seen;  // the same with the outputs that were seen
  BundleAbout about;
  std::shared_ptr<void> file;  // keeps weights where they are
};

// Everything is checked before anything is used: names, sizes, and every number that a kernel takes for an index.
Result<Bundle> read_bundle(const std::filesystem::path& path);
// Of bytes that stay where they are; `where` starts every message.
Result<Bundle> parse_bundle(const SafetensorsContent& content, std::string_view where);

std::string_view op_name(const AnyCaptured& call);

// Ok if every index that the op's Args hold lies within what it points into.
Status check_indices(const AnyCaptured& call);

}  // namespace reckoner::trace
