/* How a test of the emulated runtime chooses what a launch runs: the text of a kernel, compiled as
 * C++, or the PTX that nvcc made of it. A process that does not ask for either goes by its
 * environment (EMULATED_PTX, emulation.h). Nothing here may be called while a kernel runs. */
#ifndef TESTS_STAND_INS_CUDA_EMULATION_USE_PTX_H
#define TESTS_STAND_INS_CUDA_EMULATION_USE_PTX_H

#include "tests/stand_ins/ptx/machine.h"

void emulated_ptx_use(const char *folder); /* from now on the PTX of this folder; NULL: the text */
void emulated_ptx_pause(int paused);       /* 1: the text, until 0 */
unsigned long emulated_ptx_launches(void); /* how many launches ran PTX */
int emulated_ptx_ran(const char *name);    /* 1: this kernel ran from PTX: "product<0,3>" */

/* Kernels may access these ranges alone, and not whole allocations; NULL: as before. `ranges` is
 * the caller's. */
void emulated_ptx_only(const struct ptx_range *ranges, int count);

#endif
