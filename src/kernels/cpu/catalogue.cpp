// The list of CPU kernels: one line for the kernels of each op's folder.
#include "kernels/cpu/catalogue.h"

namespace reckoner {

Catalogue cpu_catalogue() {
  Catalogue catalogue;
  return with_references(std::move(catalogue));
}

}  // namespace reckoner
