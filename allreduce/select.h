/* Finds the fastest algorithm with formulas for the cost of a call, evaluated with a few figures of
 * the link between the ranks.
 *
 * The time of a call is flags + bytes. The first term is the number of waits for a flag, one after
 * another. The second is the time in which the busiest rank moves its bytes, or in which all ranks
 * together move theirs, if they share one memory bus. For n ranks and S bytes of data, every load
 * and store counted:
 *
 *     algorithm   flags           bytes moved by the busiest rank    by all ranks
 *     naive       2               7 (n-1) S                          the same
 *     oneshot     1               (n+3) S                            n (n+3) S
 *     direct      2               2 S                                2 n S
 *     ring        2 (n-1) + 1     5 (n-1)/n S                        5 (n-1) S
 *     tree        2 ceil(log2 n)  4.5 S (2.5 S for n = 2)            5 (n-1) S
 *     fused       2               2 n S                              the same
 *
 * naive: n-1 copies in (2S each), n-1 additions (3S), n-1 copies out (2S). oneshot: a copy in
 * (2S), n loads, 1 store. direct: n loads and n stores of S/n. ring: n-1 additions and n-1
 * copies of S/n. tree: half of the data with two children, 2 x 3 S/2 up and 3 S/2 down; half of
 * it with one child, 3 S/2 + S, counted as an addition and a copy. fused: n loads and n stores
 * of S, all by rank 0.
 *
 * Ranks that share one processor have no busiest rank. Their kernels take turns, so the number of
 * turns matters most. `auto` then takes fused, which needs the fewest turns and the fewest
 * bytes. */
#ifndef ALLREDUCE_SELECT_H
#define ALLREDUCE_SELECT_H

#include "allreduce/plan.h"

/* The figures of a link. They are constants of the right magnitude, not measured on this machine,
 * since they only have to rank the algorithms. */
struct allreduce_link {
    char name[96];   /* its name in the reason for a choice */
    double flag_us;  /* microseconds from a post to the end of the wait for it */
    double rank_gbs; /* loads and stores of one rank, GB/s */
    double all_gbs;  /* loads and stores of all ranks together, GB/s; 0: no common limit */
    double copy_gbs; /* copies of a call's data to host memory and back, GB/s; 0: no copies */
    int takes_turns; /* 1: all ranks share one processor */
    int at_once;     /* 1: their kernels run on it at the same time if they fit */
};

/* Emulated devices: n processes on the cores that this process may use, all in one memory. */
struct allreduce_link allreduce_link_host(int n);

/* A GPU for each rank, with links between them such as NVLink. */
struct allreduce_link allreduce_link_gpus(void);

/* One GPU that all ranks share; at_once is 1 under MPS. */
struct allreduce_link allreduce_link_shared_gpu(int at_once);

/* GPUs that cannot reach each other: the host's link, with copies to the host's memory and back. */
struct allreduce_link allreduce_link_staged(const struct allreduce_link *host);

/* Expected microseconds of one call over n >= 2 ranks. */
double allreduce_cost(enum allreduce_algorithm algorithm, int n, size_t count,
                      const struct allreduce_link *link);

/* The cheapest algorithm; over 3 or more ranks only among those that add in fold order, unless
 * any_order. With n = 1 it is direct, whose plan then only scales. `text`, which may be NULL, gets
 * the choice and its reason in one line. */
enum allreduce_algorithm allreduce_choose(int n, size_t count, int any_order,
                                          const struct allreduce_link *link, char *text,
                                          size_t text_bytes);

#endif
