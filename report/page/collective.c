/* The allreduce of a run as hops: see collective.h. */
#include "report/page/collective.h"

#include "base/error.h"
#include "report/page/buckets.h"

size_t largest_bucket_count(const struct run_record *run) {
    return (size_t)largest_bucket(run) / sizeof(float);
}

int hops_of_run(const struct run_record *run, struct hops *hops, int *instead) {
    enum allreduce_algorithm algorithm;
    int known =
        !allreduce_algorithm_parse(run->chosen, &algorithm) && allreduce_has_plan(algorithm);
    if (!known) algorithm = ALLREDUCE_RING;
    if (instead) *instead = !known;
    return hops_of_call(hops, algorithm, run->devices, largest_bucket_count(run), NULL);
}

double hops_bytes(const struct hops *hops) {
    double sum = 0;
    for (int i = 0; i < hops->move_count; i++)
        if (hops->moves[i].from != hops->moves[i].to)
            sum += (double)hops->moves[i].count * sizeof(float);
    return sum;
}
