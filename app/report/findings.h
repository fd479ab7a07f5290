/* What a profile means, in sentences: how much of device 0's excess in DP is outputs, optimizer,
 * batch and reduction; what the loss in forward saves; what DDP saves and what it does not; what
 * PyTorch's defaults would add; which mode is faster and why. Every number is measured, by spans
 * and ledgers, unless the sentence or the head says that it is computed. */
#ifndef REPORT_FINDINGS_H
#define REPORT_FINDINGS_H

#include <stdio.h>

#include "report/beside_pytorch.h"
#include "trace/record.h"

struct profiled {
    const struct run_record *dp, *loss_in_forward, *ddp; /* NULL: was not run */
    int details;                                         /* 0: the answer, in about ten lines */
    struct beside_pytorch dp_beside, ddp_beside; /* zeroed: what PyTorch would hold is not known */
};

/* Prints the findings in at most `width` columns (text.h); nothing for runs on one device. Of runs
 * that were computed and not measured there are no times. */
void profile_findings(FILE *file, int width, const struct profiled *runs);

#endif
