/* The queue of a simulation. The earliest event is first; events at the same time keep the order of
 * insertion. */
#ifndef CLOCK_DUE_H
#define CLOCK_DUE_H

#include "clock/transfers.h"

enum due_kind { DUE_THREAD, DUE_STREAM, DUE_END, DUE_BEGIN, DUE_TRANSFERS, DUE_SHARE };

struct due {
    int64_t ns;
    uint64_t order; /* set by due_push */
    enum due_kind kind;
    int of;                   /* index of the thread or stream */
    uint32_t change;          /* END, TRANSFERS: the event is stale if this has changed since */
    struct transfer transfer; /* BEGIN */
};

/* A binary heap; a zeroed one is empty. list is owned: free it. */
struct due_heap {
    struct due *list; /* [count] */
    int count, room;
    uint64_t order;
    int failed; /* 1: no host memory for an event */
};

void due_push(struct due_heap *heap, struct due due);
struct due due_pop(struct due_heap *heap); /* the heap must not be empty */

#endif
