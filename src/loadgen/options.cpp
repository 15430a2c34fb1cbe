#include "loadgen/options.h"

namespace reckoner::loadgen {

std::string_view name(Metric metric) {
  switch (metric) {
    case Metric::ttft:
      return "ttft";
    case Metric::tpot:
      return "tpot";
    case Metric::itl:
      return "itl";
    case Metric::e2el:
      break;
  }
  return "e2el";
}

std::string_view title(Metric metric) {
  switch (metric) {
    case Metric::ttft:
      return "time to first token";
    case Metric::tpot:
      return "time per output token";
    case Metric::itl:
      return "inter-token latency";
    case Metric::e2el:
      break;
  }
  return "end-to-end latency";
}

}  // namespace reckoner::loadgen
