#include "kernels/cpu/attention/attend.inc.h"
