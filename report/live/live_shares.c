/* Reading the live page: see live_shares.h and live_view.h. */
#include "report/live/live_shares.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "report/live/live_view.h"

/* ---- reading ---- */

int live_view_new(struct live_view **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fail(ERR_MEMORY, "dashboard: no host memory");
    (*out)->current = -1;
    return OK;
}

void live_view_free(struct live_view *v) {
    free(v);
}

static void read_losses(struct seen_run *seen, const struct live_run *run) {
    uint64_t written = __atomic_load_n(&run->losses, __ATOMIC_ACQUIRE);
    int all = seen->facts.last_step - seen->facts.first_step;
    if (written > seen->losses + LIVE_LOSSES) seen->losses = written - LIVE_LOSSES;
    for (; seen->losses < written; seen->losses++) {
        double loss;
        __atomic_load(&run->loss[seen->losses % LIVE_LOSSES], &loss, __ATOMIC_RELAXED);
        if (!isfinite(loss) || seen->losses >= (uint64_t)all) continue;
        int bin = (int)(seen->losses * (uint64_t)seen->bins / (uint64_t)all);
        seen->sum[bin] += loss;
        seen->count[bin]++;
    }
}

/* Shares count from a reading at least WINDOW_NS before the last one. The first reading is all
 * zeros, the start of the run. */
static void read_device(struct seen_run *seen, const struct live_run *run, int d) {
    static const int64_t WINDOW_NS = 1000000000;
    struct live_device now;
    if (!live_read_device(&now, &run->device[d])) return;
    if (now.trained_ns - seen->between[d].trained_ns >= WINDOW_NS) {
        seen->since[d] = seen->between[d];
        seen->between[d] = now;
    }
    seen->device[d] = now;
}

static void read_epochs(struct seen_run *seen, const struct live_run *run) {
    for (int i = 0; i < LIVE_EPOCHS; i++) {
        seen->epoch[i].step = __atomic_load_n(&run->epoch[i].step, __ATOMIC_RELAXED);
        __atomic_load(&run->epoch[i].accuracy, &seen->epoch[i].accuracy, __ATOMIC_RELAXED);
    }
}

static void read_run(struct seen_run *seen, const struct live_run *run) {
    struct live_progress progress;
    if (!seen->begun) {
        int all = run->facts.last_step - run->facts.first_step;
        seen->begun = 1;
        seen->facts = run->facts;
        seen->bins = all < SEEN_BINS ? all : SEEN_BINS;
    }
    read_losses(seen, run);
    for (int d = 0; d < seen->facts.devices; d++)
        read_device(seen, run, d);
    read_epochs(seen, run);
    if (live_read_progress(&progress, &run->progress)) seen->progress = progress;
    if (seen->progress.state != LIVE_DONE) return;
    for (int d = 0; d < seen->facts.devices; d++)
        seen->since[d] = (struct live_device){.version = 0};
}

void live_view_read(struct live_view *v, const struct live_page *page) {
    for (int i = 0; i < LIVE_RUNS; i++) {
        if (!__atomic_load_n(&page->run[i].begun, __ATOMIC_ACQUIRE)) continue;
        read_run(&v->run[i], &page->run[i]);
        v->current = i;
    }
}

/* ---- shares ---- */

const char *share_name(int share) {
    switch (share) {
    case PHASE_HOST_LAUNCH: return "host launch";
    case PHASE_HOST_SERIAL: return "host serial";
    case SHARE_COMM: return "allreduce, all";
    case SHARE_WAIT: return "waiting";
    case SHARE_NO_CORE: return "without a core";
    case SHARE_IDLE: return "idle";
    case SHARE_BUSY: return "busy";
    default: return phase_name((enum phase)share);
    }
}

static int64_t amount_of(const struct live_device *d, int share) {
    switch (share) {
    case SHARE_COMM: return d->comm_ns;
    case SHARE_WAIT: return d->wait_ns;
    case SHARE_NO_CORE: return d->no_core_ns;
    case SHARE_BUSY: return d->busy_ns;
    default: break;
    }
    if (share < PHASE_COUNT) return d->phase_ns[share];
    int64_t used = d->busy_ns + d->wait_ns + d->no_core_ns + d->phase_ns[PHASE_PROOF];
    for (int p = 0; p < PHASE_COUNT; p++)
        if (phase_is_of_host(p)) used += d->phase_ns[p];
    return used < d->trained_ns ? d->trained_ns - used : 0;
}

double seen_share(const struct seen_run *run, int d, int share) {
    const struct live_device *now = &run->device[d], *then = &run->since[d];
    double time = (double)(now->trained_ns - then->trained_ns),
           amount = (double)(amount_of(now, share) - amount_of(then, share));
    return time > 0 && amount > 0 ? amount / time : 0;
}

double seen_share_of_others(const struct seen_run *run, int share) {
    double sum = 0;
    for (int d = 1; d < run->facts.devices; d++)
        sum += seen_share(run, d, share);
    return run->facts.devices > 1 ? sum / (run->facts.devices - 1) : 0;
}

/* Evaluation lies outside of training; allreduce is shown by its lane. */
static int is_shown(int share) {
    return share != PHASE_NONE && share != PHASE_EVALUATE && share != PHASE_ALLREDUCE;
}

int seen_largest_shares(const struct seen_run *run, int *list, int most) {
    static const double LEAST = 0.005;
    double size[SHARES];
    int count = 0;
    for (int s = 0; s < SHARES; s++) {
        double first = seen_share(run, 0, s), rest = seen_share_of_others(run, s);
        size[s] = !is_shown(s) ? 0 : first > rest ? first : rest;
        count += size[s] >= LEAST;
    }
    for (; count > most; count--) { /* the smallest goes */
        int least = -1;
        for (int s = 0; s < SHARES; s++)
            if (size[s] >= LEAST && (least < 0 || size[s] < size[least])) least = s;
        size[least] = 0;
    }
    int n = 0;
    for (int s = 0; s < SHARES; s++)
        if (size[s] >= LEAST && n < most) list[n++] = s;
    return n;
}

int seen_accuracies(const struct seen_run *run, double at[LIVE_EPOCHS],
                    double accuracy[LIVE_EPOCHS]) {
    int last = run->progress.epochs, first = last > LIVE_EPOCHS ? last - LIVE_EPOCHS : 0, n = 0;
    double steps = run->facts.last_step - run->facts.first_step;
    for (int i = first; i < last; i++) {
        int place = i % LIVE_EPOCHS;
        if (run->epoch[place].accuracy < 0 || steps <= 0) continue;
        at[n] = (run->epoch[place].step - run->facts.first_step) / steps;
        accuracy[n++] = run->epoch[place].accuracy;
    }
    return n;
}
