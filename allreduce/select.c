/* The choice of `auto`. select.h has the formulas and their derivation. */
#include "allreduce/select.h"

#include <stdio.h>

#include "base/cores.h"
#include "base/text/text.h"
#include "trace/ledger.h"

/* Measured once with bench/allreduce_perf, on 2 cores with 32 MiB of shared cache. A core moves
 * some 180 GB/s to and from that cache. */
static const double SPIN_FLAG_US = 0.3; /* the peer polls the flag */
static const double WAKE_FLAG_US = 9;   /* the peer sleeps and must be woken */
static const double CORE_GBS = 180;

struct allreduce_link allreduce_link_host(int n) {
    int cores = usable_cores();
    struct allreduce_link link = {.flag_us = n > cores ? WAKE_FLAG_US : SPIN_FLAG_US,
                                  .rank_gbs = CORE_GBS};
    link.all_gbs = CORE_GBS * (n < cores ? n : cores);
    snprintf(link.name, sizeof link.name, "host shared memory, %d core%s", cores,
             cores == 1 ? "" : "s");
    return link;
}

/* The scale of NVLink 4 through a switch: 450 GB/s each way, some 370 of it reached, both ways
 * counted. A flag costs a fence, a store to the peer and a poll there. */
static const double GPU_FLAG_US = 2, GPU_GBS = 740;

struct allreduce_link allreduce_link_gpus(void) {
    struct allreduce_link link = {
        .name = "a GPU for each rank", .flag_us = GPU_FLAG_US, .rank_gbs = GPU_GBS};
    return link;
}

/* A handoff between processes, and the memory of one GPU. The choice does not depend on these
 * figures; they are only for displayed costs. */
struct allreduce_link allreduce_link_shared_gpu(int at_once) {
    struct allreduce_link link = {.name = "one GPU for all",
                                  .flag_us = 50,
                                  .rank_gbs = 3000,
                                  .all_gbs = 3000,
                                  .takes_turns = 1,
                                  .at_once = at_once};
    return link;
}

/* The order of magnitude of a PCIe 4 link with 16 lanes. */
static const double HOST_COPY_GBS = 25;

struct allreduce_link allreduce_link_staged(const struct allreduce_link *host) {
    struct allreduce_link link = *host;
    snprintf(link.name, sizeof link.name, "staged in host memory");
    link.copy_gbs = HOST_COPY_GBS;
    return link;
}

double allreduce_cost(enum allreduce_algorithm algorithm, int n, size_t count,
                      const struct allreduce_link *link) {
    double S = (double)count * sizeof(float), flags = 0, one = 0, all = 0;
    int levels = 0;
    while (1 << levels < n)
        levels++;
    switch (algorithm) {
    case ALLREDUCE_NAIVE:
        flags = 2;
        one = all = 7 * (n - 1) * S;
        break;
    case ALLREDUCE_ONESHOT:
        flags = 1;
        one = (n + 3) * S;
        all = n * one;
        break;
    case ALLREDUCE_DIRECT:
        flags = 2;
        one = 2 * S;
        all = n * one;
        break;
    case ALLREDUCE_RING:
        flags = 2 * (n - 1) + 1;
        all = 5 * (n - 1) * S;
        one = all / n;
        break;
    case ALLREDUCE_TREE:
        flags = 2 * levels;
        one = n > 2 ? 4.5 * S : 2.5 * S;
        all = 5 * (n - 1) * S;
        break;
    case ALLREDUCE_FUSED:
        flags = 2;
        one = all = 2 * n * S;
        break;
    default: break;
    }
    double alone_us = one / link->rank_gbs * 1e-3,
           shared_us = link->all_gbs > 0 ? all / link->all_gbs * 1e-3 : 0,
           copies_us = link->copy_gbs > 0 ? 2 * S / link->copy_gbs * 1e-3 : 0;
    return flags * link->flag_us + (alone_us > shared_us ? alone_us : shared_us) + copies_us;
}

enum allreduce_algorithm allreduce_choose(int n, size_t count, int any_order,
                                          const struct allreduce_link *link, char *text,
                                          size_t text_bytes) {
    enum allreduce_algorithm best = ALLREDUCE_DIRECT;
    int ordered_only = n > 2 && !any_order;
    char size[32], costs[160] = "";
    if (n > 1 && link->takes_turns) {
        if (text)
            snprintf(text, text_bytes, "fused for %s over %d ranks (%s): %sone does all the work%s",
                     format_bytes(count * sizeof(float), size, sizeof size), n, link->name,
                     link->at_once ? "" : "their kernels would take turns, so ",
                     link->at_once ? ""
                                   : ", as do the ranks' other kernels: start MPS "
                                     "(nvidia-cuda-mps-control -d) to run them at once");
        return ALLREDUCE_FUSED;
    }
    for (int i = ALLREDUCE_NAIVE; n > 1 && i < ALLREDUCE_ALGORITHM_COUNT; i++) {
        enum allreduce_algorithm a = (enum allreduce_algorithm)i;
        if (!allreduce_has_plan(a)) continue;
        if (ordered_only && !allreduce_keeps_order(a)) continue;
        double cost = allreduce_cost(a, n, count, link);
        if (cost < allreduce_cost(best, n, count, link)) best = a;
        if (!text) continue; /* the hot path of every call needs no text */
        text_append(costs, sizeof costs, cost < 999.5 ? "%s%s %.3g" : "%s%s %.0f",
                    *costs ? ", " : "", allreduce_algorithm_name(a), cost);
    }
    if (text && n == 1) snprintf(text, text_bytes, "one rank: only the scale is left to do");
    if (text && n > 1)
        snprintf(text, text_bytes, "%s for %s over %d ranks (%s): predicted us: %s%s",
                 allreduce_algorithm_name(best),
                 format_bytes(count * sizeof(float), size, sizeof size), n, link->name, costs,
                 ordered_only ? "; ring and tree excluded: they add in another order" : "");
    return best;
}
