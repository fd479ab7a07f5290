/* The transfers in progress, and the time when the next one ends. When some have begun or ended,
 * net_share sets new rates for all. It does so once per point in time, because many begin and end
 * together. */
#ifndef CLOCK_TRANSFERS_H
#define CLOCK_TRANSFERS_H

#include <stdint.h>

#include "clock/net.h"

struct transfer {
    struct net_way way;
    double bytes, rate; /* bytes left at `since`; bytes per nanosecond since then */
    double own_rate;    /* > 0: the transfer shares no link and has this rate */
    int64_t done_ns;
    int owner; /* the stream that waits for it */
};

struct transfers {
    const struct net *net;
    double faster; /* a factor on the rates of links */
    int64_t since;
    int count, room;
    /* owned, unordered; and scratch memory for net_share */
    struct transfer *list; /* [count] */
    const struct net_way **way;
    double *rate;
};

/* Begins a transfer at `now`, which never goes back. It moves nothing before transfers_share.
 * Returns 0 if out of host memory. */
int transfers_begin(struct transfers *t, int64_t now, const struct transfer *one);
/* Removes one transfer that is done by `now`. Returns its owner, or -1 if none is done. */
int transfers_end_one(struct transfers *t, int64_t now);
/* Recomputes all rates after transfers have begun or ended at `now`. */
void transfers_share(struct transfers *t, int64_t now);
/* The time when the next transfer is done; INT64_MAX: none runs. */
int64_t transfers_next_ns(const struct transfers *t);
void transfers_free(struct transfers *t);

#endif
