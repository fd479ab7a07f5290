/* The arithmetic of device/event_clock.h. */
#include "device/event_clock.h"

static const double NS_PER_MS = 1e6;
/* two quartz clocks differ by some 10 us after a second */
static const int64_t OLD_NS = 1000000000;

int event_clock_anchor(struct event_clock *clock, const int64_t *before, const int64_t *after,
                       int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (after[i] - before[i] < after[best] - before[best]) best = i;
    clock->window_ns = after[best] - before[best];
    clock->anchor_ns = before[best] + clock->window_ns / 2;
    return best;
}

static int64_t to_ns(float ms) {
    double ns = (double)ms * NS_PER_MS;
    return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

void event_clock_span(struct event_clock *clock, float start_ms, float length_ms, int64_t *start_ns,
                      int64_t *end_ns) {
    *start_ns = clock->anchor_ns + to_ns(start_ms);
    *end_ns = *start_ns + (length_ms > 0 ? to_ns(length_ms) : 0);
    /* after a new anchor the times may step back by up to its window */
    if (*start_ns < clock->last_ns) *start_ns = clock->last_ns;
    if (*end_ns < *start_ns) *end_ns = *start_ns;
    clock->last_ns = *end_ns;
}

int event_clock_is_old(const struct event_clock *clock, int64_t now) {
    return now - clock->anchor_ns > OLD_NS;
}
