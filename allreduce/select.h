/* Which algorithm is the quickest: cost formulas, evaluated with a few numbers about the link.
 *
 * A time is words + bytes: how many times somebody waits for a flag one after another, and how
 * long the busiest rank (or what all ranks share, such as one memory bus) takes to move its
 * bytes. n ranks, S bytes of data, every load and every store counted:
 *
 *     algorithm   words           bytes moved by the busiest rank    by all ranks
 *     naive       2               7 (n-1) S                          the same
 *     oneshot     1               (n+3) S                            n (n+3) S
 *     direct      2               2 S                                2 n S
 *     ring        2 (n-1) + 1     5 (n-1)/n S                        5 (n-1) S
 *     tree        2 ceil(log2 n)  4.5 S (2.5 S for n = 2)            5 (n-1) S
 *     fused       2               2 n S                              the same
 *
 * naive: n-1 copies in (2S each), n-1 additions (3S), n-1 copies out (2S). oneshot: copy in 2S,
 * n loads, 1 store. direct: n loads and n stores of S/n. ring: n-1 additions and n-1 copies of
 * S/n. tree: half the data with two children, 2 x 3 S/2 up and 3 S/2 down; with one child 3 S/2
 * + S. fused: n loads and n stores of S, by rank 0.
 *
 * Ranks that share ONE processor have no busiest rank: their kernels take turns, and what counts
 * first is how often the processor changes hands. There `auto` takes fused, which needs the
 * fewest turns and the fewest bytes. */
#ifndef ALLREDUCE_SELECT_H
#define ALLREDUCE_SELECT_H

#include "allreduce/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of a scale, not measurements of the day: they only have to put the algorithms in the
 * right order. */
struct allreduce_link {
    char name[48];   /* for the reason's text */
    double word_us;  /* from a post to the end of the wait for it */
    double rank_gbs; /* GB/s of loads and stores by one rank */
    double all_gbs;  /* by all ranks together; 0: each has its own */
    int takes_turns; /* 1: all ranks share one processor */
};

/* Emulated devices: n processes on the cores this process may use, all in one memory. */
struct allreduce_link allreduce_link_host(int n);

/* GPUs: a GPU for each rank, with links between them such as NVLink's; or one that ranks share. */
struct allreduce_link allreduce_link_gpus(void);
struct allreduce_link allreduce_link_shared_gpu(void);

/* Expected microseconds of one call over n >= 2 ranks. */
double allreduce_cost(enum allreduce_algorithm algorithm, int n, size_t count,
                      const struct allreduce_link *link);

/* The cheapest algorithm; over 3 or more ranks, unless any_order, among those that add in tree
 * order. text (NULL: not wanted) gets the choice and its reason in one line. n = 1: direct,
 * whose plan is the scaling alone. */
enum allreduce_algorithm allreduce_choose(int n, size_t count, int any_order,
                                          const struct allreduce_link *link, char *text,
                                          size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
