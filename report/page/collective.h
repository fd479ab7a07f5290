/* The allreduce that a run of DDP used, as hops between ranks (allreduce/hops.h). */
#ifndef REPORT_PAGE_COLLECTIVE_H
#define REPORT_PAGE_COLLECTIVE_H

#include "allreduce/hops.h"
#include "trace/record.h"

/* Elements of the largest bucket; 0: the run has none. */
size_t largest_bucket_count(const struct run_record *run);

/* The hops of the algorithm that the largest bucket took. One without a plan of ours (NCCL) is
 * shown as a ring, and *instead is 1 then (NULL: not wanted). hops_free it. */
int hops_of_run(const struct run_record *run, struct hops *hops, int *instead);

/* What all moves carry between ranks, in bytes. */
double hops_bytes(const struct hops *hops);

#endif
