// The list of formats. A new one is one new file and one line here (and its name in QuantFormat).
#include <fmt/format.h>

#include <vector>

#include "base/check.h"
#include "quant/nvfp4.h"
#include "quant/plain.h"

namespace reckoner {

std::span<const FormatInfo> formats() {
  static const std::array<FormatInfo, kQuantFormats> list = {kPlainFormats[0], kPlainFormats[1], kPlainFormats[2], kNvfp4Format};
  return list;
}

const FormatInfo& info(QuantFormat format) {
  const FormatInfo& found = formats()[static_cast<std::size_t>(format)];
  CHECK(found.format == format);
  return found;
}

std::int64_t weight_bytes(const Weight& w) { return w.rows * (info(w.format).row_bytes(w.cols) + info(w.format).scale_row_bytes(w.cols)); }

Weight row_range(const Weight& w, std::int64_t first, std::int64_t count) {
  CHECK(first >= 0 && first + count <= w.rows);
  Weight part = w;
  part.rows = count;
  part.data += first * info(w.format).row_bytes(w.cols);
  if (part.scales != nullptr) part.scales += first * info(w.format).scale_row_bytes(w.cols);
  return part;
}

Result<Weight> resolve_weight(const TensorSource& source, const std::string& module, std::int64_t rows, std::int64_t cols) {
  for (const FormatInfo& format : formats()) {
    if (std::optional<Weight> weight = TRY(format.resolve(source, module, rows, cols))) return *weight;
  }
  const Tensor* tensor = source.find(module + ".weight");
  if (tensor == nullptr) {
    return Error{fmt::format("{}: missing", source.locate(module + ".weight")),
                 "fetch the checkpoint again; a shard may not have been downloaded"};
  }
  return Error{
      fmt::format("{}: dtype {} is not a weight format that Reckoner reads (F32, F16, BF16; U8 with weight_scale and weight_scale_2)",
                  source.locate(module + ".weight"), name(tensor->dtype)),
      "use a BF16 or ModelOpt NVFP4 export of the model"};
}

}  // namespace reckoner
