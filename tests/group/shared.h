/* Runs jobs for the tests of group/: it forks ranks, each of which opens the group of all ranks. */
#ifndef TESTS_GROUP_SHARED_H
#define TESTS_GROUP_SHARED_H

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "tests/group/expected.h"
#include "tests/harness/ranks.h"

/* Every call but the barrier. */
static const enum collective whats[] = {
    COLLECTIVE_ALL_REDUCE, COLLECTIVE_BROADCAST,      COLLECTIVE_REDUCE,
    COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_GATHER,
    COLLECTIVE_SCATTER,    COLLECTIVE_ALL_TO_ALL,     COLLECTIVE_SEND};
enum { WHATS = sizeof whats / sizeof *whats };

/* Few elements fill these windows several times, and exceed these caches. */
static const struct group_sizes tiny = {
    .window = 4096, .half = 2048, .mailbox = 1024, .slot = 256, .caches = 8192};

/* Results of the ranks for the test, in memory that all of them share. */
struct page {
    int code[MAX_DEVICES];
    char text[MAX_DEVICES][1024];
    int counter; /* atomic */
};

/* Runs `entry`, which returns an exit status, in n ranks. */
static inline struct launch_result run_ranks(int n, int (*entry)(void *), void *context) {
    struct launch_result result;
    launch_all(n, entry, context, &result);
    return result;
}

/* The end of a rank: its status, and its message if it failed. */
static inline int end_rank(struct group *group, struct page *page, int code) {
    int rank = group ? group_rank(group) : atoi(getenv("RANK"));
    if (page) {
        page->code[rank] = code;
        if (code) snprintf(page->text[rank], sizeof page->text[0], "%s", error_message());
    }
    if (code && !page) fprintf(stderr, "rank %d: %s\n", rank, error_message());
    group_close(group);
    return rank_status(code);
}

/* One call in the group, with inputs made of e->seed, and its judgement. in_place: where input and
 * output have one size. Begun and waited for where `async`. */
static inline int try_call(struct group *g, struct expected *e, int in_place, int async) {
    size_t bytes = dtype_bytes(e->how.type);
    int rank = group_rank(g), sends = e->what == COLLECTIVE_SEND;
    if (sends && rank != e->root && rank != e->peer) return OK;
    char untouched[WIDEST], *input = malloc(expected_input(e) * bytes + 1),
                            *output = malloc(expected_output(e) * bytes + 1);
    if (!input || !output) return fail(ERR_MEMORY, "test: no memory");
    memset(untouched, 0xff, sizeof untouched);
    memset(output, 0xff, expected_output(e) * bytes);
    expected_fill(e, input, rank);
    char *to = in_place ? input : output;
    struct group_call call = {.what = e->what,
                              .count = e->count,
                              .how = e->how,
                              .average = e->scale != 1,
                              .root = sends ? 0 : e->root,
                              .peer = rank == e->peer ? e->root : e->peer,
                              .receive = sends && rank == e->peer,
                              .input = input,
                              .output = to};
    struct work *work = NULL;
    int code = group_run(g, &call, async ? &work : NULL);
    if (!code && work) code = work_wait(work);
    work_free(work);
    long wrong = code ? -1 : expected_wrong(e, to, rank, in_place ? NULL : untouched);
    if (wrong >= 0 && (!sends || rank == e->peer))
        code =
            fail(ERR_CHECK, "%s of %zu %s by %s over %d ranks, root %d, in place %d: element %ld",
                 collective_name(e->what), e->count, dtype_name(e->how.type),
                 element_op_name(e->how.op), e->n, e->root, in_place, wrong);
    free(input);
    free(output);
    return code;
}

#endif
