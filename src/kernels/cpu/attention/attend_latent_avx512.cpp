#include "kernels/cpu/attention/attend_latent.inc.h"
