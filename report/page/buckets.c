/* The sizes of buckets: see buckets.h. */
#include "report/page/buckets.h"

double bucket_bytes(const struct run_record *run, int b) {
    return b >= 0 && b < run->bucket_count ? (double)run->bucket_bytes[b] : 0;
}

double largest_bucket(const struct run_record *run) {
    double most = 0;
    for (int b = 0; b < run->bucket_count; b++)
        if (bucket_bytes(run, b) > most) most = bucket_bytes(run, b);
    return most;
}
