/* A line about a worker on stderr every DUET_RPC_LIVE seconds, for runs that take long:
 *
 *     agent: 1240 calls/s run here, 1/s from here, 2 wait; select_action 620/s of 31 us, ...
 *
 * The three functions that took most of the time are named, those that run here first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/table.h"

enum { NAMED = 3, MOST_SHARES = 32 };

int64_t live_every(void) {
    const char *text = getenv("DUET_RPC_LIVE");
    double s = text ? atof(text) : 0;
    return s > 0 && s < 1e6 ? (int64_t)(s * 1e9) : 0;
}

/* What a function did since the last line, for all workers or at all. */
struct share {
    const char *function;
    int served;
    double calls, us;
};

static int dearest_first(const void *left, const void *right) {
    const struct share *a = left, *b = right;
    if (a->served != b->served) return b->served - a->served;
    return a->us > b->us ? -1 : a->us < b->us;
}

static int shares_of(const duet_rpc *rpc, struct share *share) {
    int count = 0;
    for (const struct stat_line *l = rpc->stats; l; l = l->next) {
        int i = 0;
        while (i < count &&
               (share[i].served != l->served || strcmp(share[i].function, l->function)))
            i++;
        if (i == MOST_SHARES || l->calls == l->calls_said) continue;
        if (i == count) share[count++] = (struct share){l->function, l->served, 0, 0};
        share[i].calls += (double)(l->calls - l->calls_said);
        share[i].us += l->sum_us - l->sum_us_said;
    }
    qsort(share, (size_t)count, sizeof *share, dearest_first);
    return count;
}

void live_line(duet_rpc *rpc, int64_t ns, char text[LIVE_BYTES]) {
    struct share share[MOST_SHARES];
    double s = (double)ns * 1e-9, sum[2] = {0, 0};
    int count = shares_of(rpc, share);
    for (int i = 0; i < count; i++)
        sum[share[i].served] += share[i].calls / s;
    int used = snprintf(text, LIVE_BYTES, "%s: %.0f calls/s run here, %.0f/s from here, %d wait",
                        rpc->name, sum[1], sum[0], rpc->pending_count);
    for (int i = 0; i < count && i < NAMED; i++) {
        double us = share[i].us / share[i].calls;
        used += snprintf(text + used, (size_t)(LIVE_BYTES - used), "%s%s%.60s %.0f/s of %.3g %s",
                         i ? ", " : "; ", share[i].served ? "" : "called ", share[i].function,
                         share[i].calls / s, us < 999.5 ? us : us * 1e-3, us < 999.5 ? "us" : "ms");
    }
    for (struct stat_line *l = rpc->stats; l; l = l->next)
        l->calls_said = l->calls, l->sum_us_said = l->sum_us;
}
