#include "kernels/cpu/rows/rows.inc.h"
