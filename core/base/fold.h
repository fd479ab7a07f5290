/* The fold is the one order in which Duet sums over devices (docs/design.md section 2 rule 1).
 *
 * Float sums depend on their order. DP, DDP and a single device train the same bits because all of
 * them add the terms of n devices in FOLD ORDER. Term r takes in term r + ceil(n/2). The lower
 * half, which then holds the whole sum, is folded again until one term is left.
 *
 *     n = 5    term    0     1     2     3     4
 *              h = 3   0+3   1+4   2                     term 0 takes in 3, term 1 takes in 4
 *              h = 2   +2    .                           term 0 takes in 2
 *              h = 1   +1                                term 0 takes in 1: ((0+3)+2)+(1+4)
 *
 * The n terms may be spread over W devices, with term v on device v mod W. If each device holds 2^k
 * of them, the first k halvings pair terms on one device. So folding first on each device and then
 * over the devices gives exactly the same sums.
 *
 * Only this file defines the order. Code that adds the terms one pair at a time walks fold_next or
 * fold_schedule. The vector and GPU forms unroll it for speed; they are named fold_... too, and
 * tests compare them with this code. */
#ifndef BASE_FOLD_H
#define BASE_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* How many of n terms remain after one halving: ceil(n/2). */
static inline int fold_half(int n) {
    return (n + 1) / 2;
}

/* The n - 1 additions of a fold, one after another: `to` takes in `from`. With n <= 1 there is no
 * addition.
 *
 *     for (struct fold f = fold_begin(n); fold_next(&f);)
 *         x[f.to] += x[f.from];
 *
 * leaves the sum in x[0]. */
struct fold {
    int to, from;
    int n, half; /* terms before and after the current halving */
    int least;   /* halving stops at this many terms */
};

static inline struct fold fold_begin(int n) {
    struct fold f = {-1, 0, n, fold_half(n), 1};
    return f;
}

/* Begins a fold of n terms that stops when no more than `least` are left. */
static inline struct fold fold_down(int n, int least) {
    struct fold f = {-1, 0, n, fold_half(n), least};
    return f;
}

static inline int fold_next(struct fold *f) {
    f->to++;
    if (f->to + f->half >= f->n) { /* no partner is left; the lower half is folded next */
        f->n = f->half;
        f->half = fold_half(f->n);
        f->to = 0;
    }
    f->from = f->to + f->half;
    return f->n > f->least;
}

/* Another order, such as that of a ring allreduce (plan_order in allreduce/plan.h): n - 1 additions
 * in place, which leave the sum in x[0] like a fold. A partial sum is always at its lowest term,
 * since a + b has the bits of b + a. */
struct sum_order {
    int n;
    struct addition {
        uint8_t to, from; /* x[to] += x[from]; to < from */
    } add[MAX_DEVICES - 1];
};
struct sum_order fold_order(int n); /* the fold in this form */

/* Elements [first, first + count) of arrays, which are added in this order, and a list of pieces
 * that together cover the arrays. */
struct sum_piece {
    size_t first, count;
    struct sum_order order;
};
struct sum_pieces {
    struct sum_piece *piece; /* [count], owned by whoever made it */
    int count, room;
};

/* Sets *part to the part of the piece in [first, first + count). Returns 0 if it is empty. */
static inline int sum_piece_in(const struct sum_piece *piece, size_t first, size_t count,
                               struct sum_piece *part) {
    size_t end = piece->first + piece->count;
    *part = *piece;
    if (part->first < first) part->first = first;
    if (end > first + count) end = first + count;
    part->count = end > part->first ? end - part->first : 0;
    return part->count > 0;
}

/* The sum of x[0..n) in fold order; 0 for n = 0. x is overwritten. */
double fold_sum(double *x, int n);

/* 1 if folding V terms on W devices first and over the devices afterwards keeps the order: W = 1,
 * W = V, or V/W a power of two. */
int fold_fits(int virtual_devices, int devices);

/* The most buffers that fold_schedule needs: 1 + ceil(log2(MAX_DEVICES)). */
enum { FOLD_MAX_BUFFERS = 7 };

/* One step of a depth-first fold. */
struct fold_step {
    int add;  /* 0: make term `term` in buffer `to`; 1: add buffer `from` to buffer `to` */
    int term; /* if add is 0 */
    int to;   /* the buffer that is written */
    int from; /* if add is 1 */
};

/* The same fold depth first, for terms that are made one at a time and need not all stay in memory.
 * It writes the steps, and the number of buffers that they use (at most 1 + ceil(log2 n)). The sum
 * ends in buffer 0. Returns the number of steps, 2n - 1, or 0 if n is not in 1..MAX_DEVICES. */
int fold_schedule(int n, struct fold_step *steps /* [2 * MAX_DEVICES] */, int *buffers);

#endif
