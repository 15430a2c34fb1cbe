#include "kernels/cpu/attention/index_select.inc.h"
