/* See due.h. */
#include "clock/due.h"

#include "base/grow.h"

static int before(const struct due *a, const struct due *b) {
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void due_push(struct due_heap *h, struct due d) {
    if (list_grow("clock", &h->list, h->count, &h->room, sizeof d)) {
        h->failed = 1;
        return;
    }
    d.order = h->order++;
    int i = h->count++;
    for (; i && before(&d, &h->list[(i - 1) / 2]); i = (i - 1) / 2)
        h->list[i] = h->list[(i - 1) / 2];
    h->list[i] = d;
}

struct due due_pop(struct due_heap *h) {
    struct due first = h->list[0], last = h->list[--h->count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && before(&h->list[child + 1], &h->list[child])) child++;
        if (!before(&h->list[child], &last)) break;
        h->list[i] = h->list[child];
    }
    h->list[i] = last;
    return first;
}
