/* A GPU's clock on the axis of base/clock.h. A GPU tells only the distance between two events,
 * in milliseconds as a float; so one event is the anchor, whose host time is known, and every
 * other event is so and so far from it. Plain arithmetic: built and tested everywhere. */
#ifndef DEVICE_EVENT_CLOCK_H
#define DEVICE_EVENT_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct event_clock {
    int64_t anchor_ns; /* host time of the anchor event */
    int64_t taken_ns;  /* when it was last taken from the host; move leaves it */
    int64_t window_ns; /* its uncertainty: the anchor lies within anchor_ns +- window_ns / 2 */
    int64_t last_ns;   /* end of the last span given out: spans of one lane do not overlap */
};

/* A new anchor from `count` tries: each recorded its event after before[i] and saw it done by
 * after[i]. The narrowest try wins; its index is returned, so that the caller keeps that try's
 * event. count >= 1. */
int event_clock_anchor(struct event_clock *clock, const int64_t *before, const int64_t *after,
                       int count);

/* The host times of an interval that starts start_ms behind the anchor and is length_ms long.
 * Never before the end of the previous one, never of negative length. */
void event_clock_span(struct event_clock *clock, float start_ms, float length_ms, int64_t *start_ns,
                      int64_t *end_ns);

/* A float of milliseconds holds 24 bits: at 256 ms from the anchor its step is 31 ns, at 1000 s
 * 61 us. Is the anchor to be moved? move: the new anchor lies `ms` behind the old one, by the
 * GPU's own clock. */
int event_clock_is_far(float ms);
void event_clock_move(struct event_clock *clock, float ms);

/* The two clocks drift by some millionths: after a second the anchor is taken anew from the
 * host. */
int event_clock_is_old(const struct event_clock *clock, int64_t now);

#ifdef __cplusplus
}
#endif
#endif
