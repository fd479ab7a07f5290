/* See due.h. */
#include "clock/due.h"

#include <stdlib.h>

static int before(const struct due *a, const struct due *b) {
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void due_push(struct due_heap *h, struct due d) {
    if (h->count == h->room) {
        size_t more = h->room ? 2 * h->room : 256;
        struct due *larger = realloc(h->list, more * sizeof *larger);
        if (!larger) {
            h->failed = 1;
            return;
        }
        h->list = larger;
        h->room = more;
    }
    d.order = h->order++;
    size_t i = h->count++;
    for (; i && before(&d, &h->list[(i - 1) / 2]); i = (i - 1) / 2)
        h->list[i] = h->list[(i - 1) / 2];
    h->list[i] = d;
}

struct due due_pop(struct due_heap *h) {
    struct due first = h->list[0], last = h->list[--h->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && before(&h->list[child + 1], &h->list[child])) child++;
        if (!before(&h->list[child], &last)) break;
        h->list[i] = h->list[child];
    }
    h->list[i] = last;
    return first;
}
