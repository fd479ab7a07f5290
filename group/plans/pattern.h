/* The collectives of process groups follow one pattern. Some ranks SHOW blocks, and some ranks TAKE
 * them: they copy one block or add up all blocks.
 *
 *     what              who shows     blocks    who takes         a taker gets
 *     broadcast         root          1         all but root      root's block
 *     scatter           root          n         all but root      its own block of root's
 *     gather            all but root  1         root              a block of each
 *     reduce            all           1         root              the sum
 *     all_gather        all           1         all               a block of each
 *     all_to_all        all           n         all               its own block of each
 *     reduce_scatter    all           n         all               the sum of its own blocks
 *
 * A rank copies its own block from INPUT to OUTPUT, unless the block is a term of a sum. A block
 * goes through windows (windows.c) or, if it is short, through slots (slots.c). Each way has its
 * own show; the other verbs are here. Only files in this folder include this header. */
#ifndef GROUP_PLANS_PATTERN_H
#define GROUP_PLANS_PATTERN_H

#include "allreduce/plans/steps.h"
#include "group/plans/windows.h"

enum whom { NOBODY, ROOT, ALL_BUT_ROOT, EVERYBODY };
struct pattern {
    enum whom shows, takes;
    int parts;  /* 1: INPUT has a block for each taker; 0: one block for all */
    int sums;   /* 1: a taker adds up; 0: it copies */
    int stacks; /* 1: OUTPUT has a block for each rank that shows */
    const char *name;
};

const struct pattern *pattern_of(enum collective what); /* NULL: an allreduce */
uint64_t ranks_of(enum whom whom, int n, int root);

/* One rank's part. */
struct flow {
    struct plan *plan;
    const struct window_request *q;
    const struct pattern *pattern;
    uint64_t showers, takers; /* excluding this rank */
    int shows, takes;         /* 1: this rank does */
    size_t piece;             /* elements of a piece: blocks go piece by piece */
};
struct flow flow_of(struct plan *plan, const struct window_request *q, const struct pattern *p);

/* The number of elements in a piece: half a window holds one piece of each block. */
enum { HALVES = 2, MOST_PIECES = 64 };
size_t piece_of(const struct window_request *q, const struct pattern *p);

/* The block from one rank to another, and the number of its pieces. */
struct range block_of(const struct window_request *q, int from, int to);
size_t pieces_of(const struct flow *f, int from, int to);

/* Offsets: of the block for rank `to` in this rank's INPUT; of the block from `from` in its OUTPUT;
 * of piece j of block b in a window or slot. */
size_t input_at(const struct window_request *q, const struct pattern *p, int to);
size_t output_at(const struct window_request *q, const struct pattern *p, int from);
size_t part_offset(const struct flow *f, size_t j, int b);

void keep_own(const struct flow *f, size_t j);
void take_piece(const struct flow *f, size_t j); /* from all ranks that show */

/* slots.c. A NULL pattern is an allreduce. */
void through_slots(struct plan *plan, const struct window_request *q,
                   const struct pattern *pattern);

/* mailbox.c */
void send_message(struct plan *plan, const struct window_request *q);

#endif
