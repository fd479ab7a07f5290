/* The buckets of a run of DDP. */
#ifndef REPORT_PICTURES_BUCKETS_H
#define REPORT_PICTURES_BUCKETS_H

#include "report/pictures/window.h"

/* The size of bucket b in bytes; 0: there is no such bucket. */
static inline double bucket_bytes(const struct run_record *run, int b) {
    return b >= 0 && b < run->bucket_count ? (double)run->bucket_bytes[b] : 0;
}

#endif
