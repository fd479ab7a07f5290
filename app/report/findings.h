/* Explains a profile in sentences. They say how much of device 0's excess in DP is outputs,
 * optimizer, batch and reduction, how much the loss in forward and DDP save, how much PyTorch's
 * defaults would add, and which mode is faster and why. Every number is measured with spans and
 * ledgers, unless the sentence or the head says that it is computed. */
#ifndef REPORT_FINDINGS_H
#define REPORT_FINDINGS_H

#include <stdio.h>

#include "report/beside_pytorch.h"
#include "report/text.h"
#include "trace/record.h"

struct profiled {
    const struct run_record *dp, *loss_in_forward, *ddp; /* NULL: not run */
    int details;                                         /* 0: the answer, about ten lines */
    struct beside_pytorch dp_beside, ddp_beside;         /* zeroed: PyTorch's memory is not known */
};

/* Writes the findings, a sentence or two each, in reading order, and returns their number; 0 for
 * runs on one device. Computed runs have no times. `duet profile`, the page of --report and `duet
 * demo` print the same sentences. */
enum { FINDINGS = 12 };
int profile_findings(const struct profiled *runs, struct text sentences[FINDINGS]);

/* Prints them in at most `width` columns (text.h). */
void profile_findings_print(FILE *file, int width, const struct profiled *runs);

#endif
