/* The kernels for any processor, with four lanes, as SSE and NEON have, for groups of 16 samples if
 * GROUP is not defined. */
#include "device/host/kernels/fast.h"

#define WIDE 4
#define OF_ISA(name) n16_generic_##name /* what the kernels of all group sizes share */
#ifndef GROUP
#define GROUP 16
#endif
#include "device/host/kernels/n16.inc.h"
