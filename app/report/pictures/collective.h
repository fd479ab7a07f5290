/* The allreduces of a step of DDP, as hops between ranks (allreduce/hops.h). */
#ifndef REPORT_PICTURES_COLLECTIVE_H
#define REPORT_PICTURES_COLLECTIVE_H

#include "allreduce/hops.h"
#include "report/pictures/picture.h"
#include "trace/record.h"

/* The largest bucket, which is the one that a picture shows. -1: the run has none. */
int largest_bucket_of(const struct run_record *run);

/* The allreduce algorithm of a bucket; "": unknown. */
const char *bucket_algorithm(const struct run_record *run, int bucket);

/* The hops of that bucket's allreduce. NCCL's has no plan here and is shown as a ring; *instead,
 * which may be NULL, is then 1. hops_free the result. */
int hops_of_bucket(const struct run_record *run, int bucket, struct hops *hops, int *instead);

/* Draws the hops of a collective as a strip of frames; if there are too many, a line of text.
 * ERR_FAILED, ERR_MEMORY. */
int draw_hops(struct picture *p, const char *title, const struct hops *hops);

/* The bytes that all moves carry between ranks. */
double hops_bytes(const struct hops *hops);

#endif
