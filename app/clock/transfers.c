/* See transfers.h. */
#include "clock/transfers.h"

#include <math.h>
#include <stdlib.h>

#include "base/grow.h"

static void advance(struct transfers *t, int64_t now) {
    for (int i = 0; i < t->count; i++)
        t->list[i].bytes -= t->list[i].rate * (double)(now - t->since);
    t->since = now;
}

/* A finished transfer keeps its end time. */
void transfers_share(struct transfers *t, int64_t now) {
    int shared = 0;
    for (int i = 0; i < t->count; i++)
        if (!t->list[i].own_rate) t->way[shared++] = &t->list[i].way;
    net_share(t->net, t->way, shared, t->rate);
    for (int i = 0, s = 0; i < t->count; i++) {
        struct transfer *x = &t->list[i];
        x->rate = x->own_rate ? x->own_rate : t->rate[s++] * t->faster;
        if (x->done_ns > now || x->done_ns == 0)
            x->done_ns = now + (int64_t)ceil((x->bytes > 0 ? x->bytes : 0) / x->rate);
    }
}

static int grow(struct transfers *t) {
    int ways = t->room, rates = t->room;
    return !list_grow("clock", &t->way, t->count, &ways, sizeof *t->way) &&
           !list_grow("clock", &t->rate, t->count, &rates, sizeof *t->rate) &&
           !list_grow("clock", &t->list, t->count, &t->room, sizeof *t->list);
}

int transfers_begin(struct transfers *t, int64_t now, const struct transfer *one) {
    if (!grow(t)) return 0;
    advance(t, now);
    t->list[t->count] = *one;
    t->list[t->count].rate = 0;
    t->list[t->count++].done_ns = 0;
    return 1;
}

int transfers_end_one(struct transfers *t, int64_t now) {
    for (int i = 0; i < t->count; i++) {
        if (t->list[i].done_ns > now) continue;
        int owner = t->list[i].owner;
        advance(t, now);
        for (int k = i + 1; k < t->count; k++) /* ties depend on the order, so keep it */
            t->list[k - 1] = t->list[k];
        t->count--;
        return owner;
    }
    return -1;
}

int64_t transfers_next_ns(const struct transfers *t) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < t->count; i++)
        if (t->list[i].done_ns < next) next = t->list[i].done_ns;
    return next;
}

void transfers_free(struct transfers *t) {
    free(t->list);
    free(t->way);
    free(t->rate);
}
