/* PyTorch's memory next to Duet's: the memory of one run, and the estimate of
 * train/estimate/as_pytorch.h. Each is shown at its own peak. */
#ifndef REPORT_BESIDE_PYTORCH_H
#define REPORT_BESIDE_PYTORCH_H

#include <stdio.h>

#include "report/text.h"
#include "trace/record.h"

struct beside_pytorch {
    const char *title;             /* the run's title: "DP" */
    const struct run_record *duet; /* NULL: the run did not fit */
    int devices;                   /* 0: PyTorch's memory is not known */
    const struct ledger *pytorch;  /* [devices] */
    const uint64_t *saved;         /* [devices] the part of activations that autograd saves */
};

/* Adds a sentence that says how much PyTorch's DataParallel or DDP would hold on device 0, and in
 * which causes it differs. Adds nothing if either is unknown. */
void beside_pytorch_sentence(struct text *text, const struct beside_pytorch *run);

/*     DP at its peak                      Duet                      PyTorch
 *                               device 0    the others      device 0    the others
 *     held                      13.5 MiB      12.1 MiB      11.6 MiB      11.1 MiB
 *       params                  ...                                                    */
void beside_pytorch_table(FILE *file, const struct beside_pytorch *run);

#endif
