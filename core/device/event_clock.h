/* Converts times of a GPU to the clock of base/clock.h. CUDA reports only the time between two
 * events, in milliseconds as a float. So one event, whose host time is known, is the anchor, and
 * the time of every other event is the anchor's plus its distance. This file is arithmetic without
 * CUDA, so it is built and tested everywhere. */
#ifndef DEVICE_EVENT_CLOCK_H
#define DEVICE_EVENT_CLOCK_H

#include <stdint.h>

struct event_clock {
    int64_t anchor_ns; /* host time of the anchor event */
    int64_t window_ns; /* uncertainty: the true time is within anchor_ns +- window_ns / 2 */
    int64_t last_ns;   /* end of the last span, since spans of one lane do not overlap */
};

/* Takes a new anchor from `count` >= 1 tries. Try i recorded its event after before[i] and saw it
 * done by after[i], in ns. The narrowest try wins. Returns its index: the caller keeps that try's
 * event as the anchor. */
int event_clock_anchor(struct event_clock *clock, const int64_t *before, const int64_t *after,
                       int count);

/* The host times of an interval that starts start_ms after the anchor and is length_ms long. It
 * never starts before the end of the previous one, and its length is never negative. */
void event_clock_span(struct event_clock *clock, float start_ms, float length_ms, int64_t *start_ns,
                      int64_t *end_ns);

/* 1 when a new anchor is needed. The clocks of GPU and host drift apart by some millionths, so an
 * anchor is too old after a second. (A distance of a second in milliseconds, as a float of 24 bits,
 * is exact to 61 ns, far less than that drift.) */
int event_clock_is_old(const struct event_clock *clock, int64_t now);

#endif
