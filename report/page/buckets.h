/* The buckets of a run of DDP: their sizes and the times of their allreduces. */
#ifndef REPORT_PAGE_BUCKETS_H
#define REPORT_PAGE_BUCKETS_H

#include "report/page/window.h"

/* The size of bucket b in bytes, from the record's list; 0: the list is shorter. */
double bucket_bytes(const struct run_record *run, int b);

/* The size of the largest bucket in bytes. */
double largest_bucket(const struct run_record *run);

#endif
