/* The transfers that are under way at one time, and when the next of them ends. When some have
 * begun or ended, net_share gives all of them new rates. It does so once per point in time, since
 * many begin and end together. */
#ifndef CLOCK_TRANSFERS_H
#define CLOCK_TRANSFERS_H

#include <stdint.h>

#include "clock/net.h"

struct transfer {
    struct net_way way;
    double bytes, rate; /* left at `since`; bytes per nanosecond from then on */
    double own_rate;    /* > 0: it shares no link, and has this rate */
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

/* Begins a transfer at `now`, which is not before any time before. It moves nothing before
 * transfers_share. 0: out of host memory. */
int transfers_begin(struct transfers *t, int64_t now, const struct transfer *one);
/* Removes one that is done by `now` from the list. Returns its owner, or -1 if there is none. */
int transfers_end_one(struct transfers *t, int64_t now);
/* After transfers have begun or ended at `now`: recomputes all rates. */
void transfers_share(struct transfers *t, int64_t now);
/* When the next one is done; INT64_MAX: there is none. */
int64_t transfers_next_ns(const struct transfers *t);
void transfers_free(struct transfers *t);

#endif
