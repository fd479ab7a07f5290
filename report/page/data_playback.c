/* Playback's data: see data.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/json.h"
#include "report/page/collective.h"
#include "report/page/data.h"
#include "report/page/moves.h"
#include "report/text.h"

/* ---- one collective ---- */

/* The chunks first .. first + count - 1 that a range of DATA covers. */
static int chunks_of(const struct hops *h, uint64_t offset, uint64_t count, int *first) {
    int n = 0;
    *first = 0;
    for (int c = 0; c < h->chunk_count; c++) {
        if (h->chunks[c].offset < offset || h->chunks[c].offset >= offset + count) continue;
        if (!n++) *first = c;
    }
    return n;
}

/* Between ranks alone. What goes to or comes from SCRATCH or a sum in registers is shown at the
 * place in DATA that the range belongs to where it has one, and else without a place. */
static void write_hop(struct json_writer *w, const struct hops *h, int hop) {
    json_array(w, "moves");
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        int first = 0, n = 0;
        if (m->hop != hop || m->from == m->to) continue;
        if (m->to_buffer != HOP_SCRATCH)
            n = chunks_of(h, m->to_offset, m->count, &first);
        else if (m->from_buffer != HOP_SCRATCH)
            n = chunks_of(h, m->from_offset, m->count, &first);
        json_integer(w, NULL, m->from);
        json_integer(w, NULL, m->to);
        json_integer(w, NULL, m->action == HOP_REDUCE);
        json_integer(w, NULL, first);
        json_integer(w, NULL, n);
    }
    json_close(w);
}

/* What chunk c of rank r shows. */
static uint64_t terms_of(const struct hops_state *state, const struct dp_move *move, int r, int c) {
    uint64_t terms = hops_state_terms(state, r, c);
    return move ? dp_move_terms(move, c, terms) : terms;
}

/* The chunks of a rank that have changed since before[], neighbours that are equal together. */
static void write_changes(struct json_writer *w, const struct hops *h,
                          const struct hops_state *state, const struct dp_move *move, int r,
                          uint64_t *before /* [chunk_count] */) {
    for (int c = 0, n; c < h->chunk_count; c += n) {
        uint64_t is = terms_of(state, move, r, c);
        char hex[24];
        n = 1;
        if (before[c] == is) continue;
        while (c + n < h->chunk_count && terms_of(state, move, r, c + n) == is &&
               before[c + n] != is)
            n++;
        for (int k = 0; k < n; k++)
            before[c + k] = is;
        snprintf(hex, sizeof hex, "%" PRIx64, is);
        json_integer(w, NULL, r);
        json_integer(w, NULL, c);
        json_integer(w, NULL, n);
        json_string(w, NULL, hex);
    }
}

static int write_hops(struct json_writer *w, const struct hops *h, struct hops_state *state,
                      const struct dp_move *move) {
    size_t cells = (size_t)h->n * (size_t)h->chunk_count;
    uint64_t *before = calloc(cells + 1, sizeof *before);
    if (!before) return fail(ERR_MEMORY, "report: no host memory");
    int code = OK;
    json_array(w, "hops");
    for (int hop = 0; !code && hop <= h->hops; hop++) {
        code = hops_state_run(state, hop);
        json_object(w, NULL);
        write_hop(w, h, hop);
        json_array(w, "cells");
        for (int r = 0; !code && r < h->n; r++)
            write_changes(w, h, state, move, r, before + (size_t)r * (size_t)h->chunk_count);
        json_close(w);
        json_close(w);
    }
    json_close(w);
    free(before);
    return code;
}

/* The members that both kinds have, into the open object. */
static int write_states(struct json_writer *w, const struct hops *hops,
                        const struct dp_move *move) {
    struct hops_state *state = NULL;
    CHECK(hops_state_init(&state, hops));
    json_integer(w, "ranks", hops->n);
    json_integer(w, "chunks", hops->chunk_count);
    int code = write_hops(w, hops, state, move);
    hops_state_free(state);
    return code;
}

/* ---- DDP's buckets ---- */

static int write_bucket(struct json_writer *w, const struct run_record *r, int bucket) {
    struct hops hops;
    char title[96], size[32];
    CHECK(hops_of_bucket(r, bucket, &hops, NULL));
    const char *algorithm = allreduce_algorithm_name(hops.algorithm);
    snprintf(title, sizeof title, "Bucket %d, %s by %s.", bucket,
             bytes_words((double)r->bucket_bytes[bucket], size), algorithm);
    json_object(w, NULL);
    json_string(w, "title", title);
    json_string(w, "algorithm", algorithm);
    int code = write_states(w, &hops, NULL);
    json_close(w);
    hops_free(&hops);
    return code;
}

/* With more ranks or buckets the largest bucket stands for all. */
enum { ALL_BUCKETS = 12, ALL_RANKS = 8 };

int plays_all_buckets(const struct run_record *r) {
    return r->devices <= ALL_RANKS && r->bucket_count <= ALL_BUCKETS;
}

static int write_buckets(struct json_writer *w, const struct run_record *r) {
    int all = plays_all_buckets(r), code = OK;
    json_array(w, "playback");
    for (int b = 0; !code && b < r->bucket_count; b++)
        if (all || b == largest_bucket_of(r)) code = write_bucket(w, r, b);
    json_close(w);
    return code;
}

/* ---- DP's moves ---- */

static int write_move(struct json_writer *w, const struct dp_move *move) {
    struct hops hops;
    char title[96], size[32];
    CHECK(dp_move_hops(move, &hops));
    snprintf(title, sizeof title, "%s: %s, %s a step over links.", dp_move_name(move), move->what,
             bytes_words(move->bytes, size));
    json_object(w, NULL);
    json_string(w, "title", title);
    json_boolean(w, "copies", dp_move_copies(move));
    json_string(w, "before", move->before);
    json_array(w, "after");
    for (int k = 0; k < 2 && move->after[k]; k++)
        json_string(w, NULL, move->after[k]);
    json_close(w);
    int code = write_states(w, &hops, move);
    json_close(w);
    hops_free(&hops);
    return code;
}

static int write_moves_of(struct json_writer *w, const struct run_record *r, int index) {
    struct dp_move moves[MOST_DP_MOVES];
    int count = dp_moves_of(r, moves), code = OK;
    char key[24];
    snprintf(key, sizeof key, "moves-%d", index);
    json_array(w, key);
    for (int k = 0; !code && k < count; k++)
        code = write_move(w, &moves[k]);
    json_close(w);
    return code;
}

int playback_data(struct json_writer *w, const struct page *page) {
    int code = OK;
    json_object(w, "playbacks");
    for (int i = 0; !code && i < page->count; i++)
        if (has_moves(page, i)) code = write_moves_of(w, page->run[i].run, i);
    if (!code && has_collective(page)) code = write_buckets(w, page->run[index_of_ddp(page)].run);
    json_close(w);
    return code;
}
