/* Draws the allreduces of a run as hops: see collective.h. */
#include "report/pictures/collective.h"

#include "base/error.h"

int largest_bucket_of(const struct run_record *run) {
    int largest = -1;
    for (int b = 0; b < run->bucket_count; b++)
        if (largest < 0 || run->bucket_bytes[b] > run->bucket_bytes[largest]) largest = b;
    return largest;
}

const char *bucket_algorithm(const struct run_record *run, int bucket) {
    return bucket < run->bucket_algorithm_count ? run->bucket_algorithms[bucket] : "";
}

int hops_of_bucket(const struct run_record *run, int bucket, struct hops *hops, int *instead) {
    enum allreduce_algorithm algorithm;
    int known = !allreduce_algorithm_parse(bucket_algorithm(run, bucket), &algorithm) &&
                allreduce_has_plan(algorithm);
    if (!known) algorithm = ALLREDUCE_RING;
    if (instead) *instead = !known;
    return hops_of_call(hops, algorithm, run->devices,
                        (size_t)run->bucket_bytes[bucket] / sizeof(float), NULL);
}

double hops_bytes(const struct hops *hops) {
    double sum = 0;
    for (int i = 0; i < hops->move_count; i++)
        if (hops->moves[i].from != hops->moves[i].to)
            sum += (double)hops->moves[i].count * sizeof(float);
    return sum;
}
