/* What DataParallel itself moves in a step, as the page plays it back: scatter of the batch,
 * broadcast of the parameters, gather of the outputs, scatter of their gradient, reduce. A move is
 * there if the run's ledger counted bytes in its phase. Who sends to whom is drawn from the plans
 * of `duet collective` (report/collective/collective.h); the bytes are the ledger's. */
#ifndef REPORT_PICTURES_MOVES_H
#define REPORT_PICTURES_MOVES_H

#include "report/collective/collective.h"
#include "trace/record.h"

struct dp_move {
    enum phase phase;
    enum dp_collective kind;
    int devices, lead;
    size_t count;         /* of its plan: parts of a batch, or elements */
    double bytes;         /* a step, over links, as the ledger counted them */
    const char *what;     /* "the parameters" */
    const char *before;   /* what lies where before it, in a sentence */
    const char *after[2]; /* what its first and second hop do, likewise; [1]: NULL: has one hop */
};

/* The moves of a step of DP in their order; returns how many. 0: no run of DP over several devices,
 * or none did a step. */
enum { MOST_DP_MOVES = 5 };
int dp_moves_of(const struct run_record *run, struct dp_move moves[MOST_DP_MOVES]);

/* "scatter", ...: the name of its phase. */
const char *dp_move_name(const struct dp_move *move);

/* 1: it copies; 0: it adds. */
int dp_move_copies(const struct dp_move *move);

/* Its hops; hops_free them. ERR_FAILED, ERR_MEMORY. */
int dp_move_hops(const struct dp_move *move, struct hops *hops);

/* `terms` of hops_state_terms, or 0 where what lies there takes no part: what a device will be
 * given has not come yet. */
uint64_t dp_move_terms(const struct dp_move *move, int chunk, uint64_t terms);

#endif
