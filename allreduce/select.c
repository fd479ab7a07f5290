/* The choice of `auto`; select.h has the formulas and where they come from. */
#include "allreduce/select.h"

#include <sched.h>
#include <stdio.h>

#include "trace/ledger.h"

/* Measured once with bench/allreduce_perf (2 cores, 32 MiB of shared cache): a flag that a
 * spinning peer sees takes 0.3 us, one that must wake a process 9; a core moves some 180 GB/s to
 * and from the shared cache. */
static const double SPIN_WORD_US = 0.3, WAKE_WORD_US = 9, CORE_GBS = 180;

struct allreduce_link allreduce_link_host(int n) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    struct allreduce_link link = {.word_us = n > cores ? WAKE_WORD_US : SPIN_WORD_US,
                                  .rank_gbs = CORE_GBS};
    link.all_gbs = CORE_GBS * (n < cores ? n : cores);
    snprintf(link.name, sizeof link.name, "host shared memory, %d core%s", cores,
             cores == 1 ? "" : "s");
    return link;
}

/* The order of size of NVLink 4 through a switch (450 GB/s each way, some 370 of it reached),
 * both ways counted; a word is a store to the peer, a fence before it and a poll behind it. */
static const double GPU_WORD_US = 2, GPU_GBS = 740;

struct allreduce_link allreduce_link_gpus(void) {
    struct allreduce_link link = {
        .name = "a GPU for each rank", .word_us = GPU_WORD_US, .rank_gbs = GPU_GBS};
    return link;
}

/* A handoff between processes and the memory of one GPU: named for the reader of a cost, not
 * chosen by. */
struct allreduce_link allreduce_link_shared_gpu(void) {
    struct allreduce_link link = {.name = "one GPU for all",
                                  .word_us = 50,
                                  .rank_gbs = 3000,
                                  .all_gbs = 3000,
                                  .takes_turns = 1};
    return link;
}

double allreduce_cost(enum allreduce_algorithm algorithm, int n, size_t count,
                      const struct allreduce_link *link) {
    double S = (double)count * sizeof(float), words = 0, one = 0, all = 0;
    int levels = 0;
    while (1 << levels < n)
        levels++;
    switch (algorithm) {
    case ALLREDUCE_NAIVE:
        words = 2;
        one = all = 7 * (n - 1) * S;
        break;
    case ALLREDUCE_ONESHOT:
        words = 1;
        one = (n + 3) * S;
        all = n * one;
        break;
    case ALLREDUCE_DIRECT:
        words = 2;
        one = 2 * S;
        all = n * one;
        break;
    case ALLREDUCE_RING:
        words = 2 * (n - 1) + 1;
        all = 5 * (n - 1) * S;
        one = all / n;
        break;
    case ALLREDUCE_TREE:
        words = 2 * levels;
        one = n > 2 ? 4.5 * S : 2.5 * S;
        all = 5 * (n - 1) * S;
        break;
    case ALLREDUCE_FUSED:
        words = 2;
        one = all = 2 * n * S;
        break;
    default: break;
    }
    double alone_us = one / link->rank_gbs * 1e-3,
           shared_us = link->all_gbs > 0 ? all / link->all_gbs * 1e-3 : 0;
    return words * link->word_us + (alone_us > shared_us ? alone_us : shared_us);
}

enum allreduce_algorithm allreduce_choose(int n, size_t count, int any_order,
                                          const struct allreduce_link *link, char *text,
                                          size_t text_bytes) {
    enum allreduce_algorithm best = ALLREDUCE_DIRECT;
    int ordered_only = n > 2 && !any_order;
    char size[32], costs[160] = "";
    size_t used = 0;
    if (n > 1 && link->takes_turns) {
        if (text)
            snprintf(text, text_bytes,
                     "fused for %s over %d ranks (%s): their kernels would take turns, so one of "
                     "them does it all",
                     format_bytes(count * sizeof(float), size, sizeof size), n, link->name);
        return ALLREDUCE_FUSED;
    }
    for (int i = ALLREDUCE_NAIVE; n > 1 && i < ALLREDUCE_ALGORITHM_COUNT; i++) {
        enum allreduce_algorithm a = (enum allreduce_algorithm)i;
        if (!allreduce_has_plan(a)) continue;
        if (ordered_only && !allreduce_keeps_order(a)) continue;
        double cost = allreduce_cost(a, n, count, link);
        if (cost < allreduce_cost(best, n, count, link)) best = a;
        used += (size_t)snprintf(costs + used, sizeof costs - used, "%s%s %.3g", used ? ", " : "",
                                 allreduce_algorithm_name(a), cost);
    }
    if (text && n == 1) snprintf(text, text_bytes, "one rank: only the scale is left to do");
    if (text && n > 1)
        snprintf(text, text_bytes, "%s for %s over %d ranks (%s): expected us: %s%s",
                 allreduce_algorithm_name(best),
                 format_bytes(count * sizeof(float), size, sizeof size), n, link->name, costs,
                 ordered_only ? "; ring and tree have another order of summing" : "");
    return best;
}
