/* Joins slices into chunks. Executors cut long ranges into slices, so that one can travel while
 * another is added; all slices of a chunk have the same hop. This file joins neighbouring slices
 * into one move again, and cuts the result into the chunks that a drawing names. */
#include <stdlib.h>
#include <string.h>

#include "allreduce/cuts.h"
#include "base/error.h"
#include "base/grow.h"

/* ---- cuts ---- */

static int add_offset(struct cuts *cuts, uint64_t offset) {
    CHECK(list_grow("hops", &cuts->at, cuts->count, &cuts->capacity, sizeof offset));
    cuts->at[cuts->count++] = offset;
    return OK;
}

int cuts_add(struct cuts *cuts, uint64_t offset, uint64_t length) {
    CHECK(add_offset(cuts, offset));
    return add_offset(cuts, offset + length);
}

static int compare_offsets(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

void cuts_sort(struct cuts *cuts) {
    int kept = 0;
    if (cuts->count) qsort(cuts->at, (size_t)cuts->count, sizeof *cuts->at, compare_offsets);
    for (int i = 0; i < cuts->count; i++)
        if (kept == 0 || cuts->at[i] != cuts->at[kept - 1]) cuts->at[kept++] = cuts->at[i];
    cuts->count = kept;
}

size_t cuts_find(const struct cuts *cuts, uint64_t offset) {
    size_t low = 0, high = (size_t)cuts->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cuts->at[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cuts_free(struct cuts *cuts) {
    free(cuts->at);
    memset(cuts, 0, sizeof *cuts);
}

/* ---- joining ---- */

static int within(const struct hop_move *m) {
    return m->from == m->to;
}

/* Moves over links in the same hop do not depend on each other, so they may be put in the order of
 * sender, receiver and offset. Moves within a rank keep the order in which they were found. */
static int compare_moves(const void *left, const void *right) {
    const struct hop_move *a = left, *b = right;
    if (a->hop != b->hop) return a->hop < b->hop ? -1 : 1;
    if (within(a) != within(b)) return within(a) ? 1 : -1;
    if (!within(a)) {
        if (a->from != b->from) return a->from < b->from ? -1 : 1;
        if (a->to != b->to) return a->to < b->to ? -1 : 1;
        if (a->to_buffer != b->to_buffer) return a->to_buffer < b->to_buffer ? -1 : 1;
        if (a->to_offset != b->to_offset) return a->to_offset < b->to_offset ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static int joins(const struct hop_move *a, const struct hop_move *b) {
    return a->hop == b->hop && a->from == b->from && a->to == b->to && a->by == b->by &&
           a->action == b->action && a->from_buffer == b->from_buffer &&
           a->to_buffer == b->to_buffer && a->from_offset + a->count == b->from_offset &&
           a->to_offset + a->count == b->to_offset;
}

static void join_slices(struct hops *hops) {
    int kept = 0;
    for (int i = 0; i < hops->move_count; i++) {
        struct hop_move *last = kept ? &hops->moves[kept - 1] : NULL;
        if (last && joins(last, &hops->moves[i]))
            last->count += hops->moves[i].count;
        else
            hops->moves[kept++] = hops->moves[i];
    }
    hops->move_count = kept;
    for (int i = 0; i < kept; i++)
        hops->moves[i].order = i;
}

static int cut_chunks(struct hops *hops, struct cuts *cuts) {
    CHECK(cuts_add(cuts, 0, hops->sizes[PLAN_DATA]));
    for (int i = 0; i < hops->move_count; i++) {
        const struct hop_move *m = &hops->moves[i];
        if (m->from_buffer == PLAN_DATA) CHECK(cuts_add(cuts, m->from_offset, m->count));
        if (m->to_buffer == PLAN_DATA) CHECK(cuts_add(cuts, m->to_offset, m->count));
    }
    cuts_sort(cuts);
    hops->chunk_count = cuts->count - 1;
    hops->chunks = calloc((size_t)cuts->count, sizeof *hops->chunks);
    if (!hops->chunks)
        return fail(ERR_MEMORY, "hops: out of host memory for %d chunks: free some", cuts->count);
    for (int c = 0; c < hops->chunk_count; c++)
        hops->chunks[c] = (struct hop_chunk){cuts->at[c], cuts->at[c + 1] - cuts->at[c]};
    return OK;
}

int hops_join(struct hops *hops) {
    struct cuts cuts = {NULL, 0, 0};
    if (hops->move_count)
        qsort(hops->moves, (size_t)hops->move_count, sizeof *hops->moves, compare_moves);
    join_slices(hops);
    int code = cut_chunks(hops, &cuts);
    cuts_free(&cuts);
    return code;
}
