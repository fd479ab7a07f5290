/* The allreduces of a step of DDP, as hops between ranks (allreduce/hops.h). */
#ifndef REPORT_PICTURES_COLLECTIVE_H
#define REPORT_PICTURES_COLLECTIVE_H

#include "allreduce/hops.h"
#include "report/pictures/picture.h"
#include "trace/record.h"

/* The bucket that is shown if only one can be: the largest. -1: the run has none. */
int largest_bucket_of(const struct run_record *run);

/* The algorithm by which a bucket was summed; "": not known. */
const char *bucket_algorithm(const struct run_record *run, int bucket);

/* The hops of that bucket's allreduce. An algorithm without a plan of ours (NCCL) is shown as a
 * ring, and *instead is 1 then (NULL: not wanted). hops_free it. */
int hops_of_bucket(const struct run_record *run, int bucket, struct hops *hops, int *instead);

/* Draws the hops of a collective as a strip of frames; if there are too many, a line of text.
 * ERR_FAILED, ERR_MEMORY. */
int draw_hops(struct picture *p, const char *title, const struct hops *hops);

/* What all moves carry between ranks, in bytes. */
double hops_bytes(const struct hops *hops);

#endif
