/* Replays hops to find which chunks are complete on which rank: see collective_replay.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/collective/collective_replay.h"

/* The chunk that begins at `offset`; chunk_count for the end of the last one. */
static int chunk_at(const struct hops *h, uint64_t offset) {
    int low = 0, high = h->chunk_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (h->chunks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int hops_chunks_of(const struct hops *h, const struct hop_move *m, int *first, int *last) {
    if (m->to_buffer != h->result && m->from_buffer != h->result) return 0;
    uint64_t offset = m->to_buffer == h->result ? m->to_offset : m->from_offset;
    *first = chunk_at(h, offset);
    *last = chunk_at(h, offset + m->count) - 1;
    return 1;
}

/* Everything in OUTPUT is a result. In DATA several terms are a sum; the terms of one rank are a
 * result if another rank has them, too. */
static int is_result(const struct replay *r, int rank, int chunk) {
    int n = r->of->n, chunks = r->of->chunk_count;
    uint64_t terms = r->final[rank * chunks + chunk];
    if (r->of->result == HOP_OUTPUT) return terms != 0;
    if (terms & (terms - 1)) return 1;
    if (terms != rank_bit(rank)) return 1;
    for (int q = 0; q < n; q++)
        if (q != rank && r->final[q * chunks + chunk] == terms) return 1;
    return 0;
}

int replay_init(struct replay *r, const struct hops *h) {
    size_t cells = (size_t)h->n * (size_t)h->chunk_count;
    int code;
    memset(r, 0, sizeof *r);
    r->of = h;
    r->final = calloc(cells + 1, sizeof *r->final);
    r->counts = calloc(cells + 1, 1);
    if (!r->final || !r->counts)
        CHECK_GOTO(fail(ERR_MEMORY, "collective: out of host memory for %zu chunks", cells), code,
                   failed);
    CHECK_GOTO(hops_state_init(&r->state, h), code, failed);
    CHECK_GOTO(hops_state_run(r->state, h->hops), code, failed);
    for (size_t i = 0; i < cells; i++)
        r->final[i] = hops_state_terms(r->state, (int)(i / (size_t)h->chunk_count),
                                       (int)(i % (size_t)h->chunk_count));
    for (size_t i = 0; i < cells; i++)
        r->counts[i] = (char)is_result(r, (int)(i / (size_t)h->chunk_count),
                                       (int)(i % (size_t)h->chunk_count));
    hops_state_free(r->state);
    CHECK_GOTO(hops_state_init(&r->state, h), code, failed);
    return OK;

failed:
    replay_free(r);
    return code;
}

void replay_free(struct replay *r) {
    hops_state_free(r->state);
    free(r->final);
    free(r->counts);
    memset(r, 0, sizeof *r);
}

int replay_is_complete(const struct replay *r, int rank, int chunk) {
    size_t cell = (size_t)rank * (size_t)r->of->chunk_count + (size_t)chunk;
    return r->counts[cell] && hops_state_terms(r->state, rank, chunk) == r->final[cell];
}
