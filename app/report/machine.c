/* Describes the machine of a run in words: see machine.h. */
#include "report/machine.h"

#include <stdlib.h>
#include <string.h>

#include "report/values.h"

/* Two runs of the same training differ in speed by a few percent even on an idle machine. A larger
 * share is worth reporting. */
static const double BUSY = 0.05;

void add_devices(struct text *text, const struct run_record *r) {
    int shared = record_shared(r);
    text_add(text, "%s devices", r->kind);
    if (*r->modelled) text_add(text, ", times modelled: %s", r->modelled);
    if (shared)
        text_add(text, " (%d devices share %d %s%s)", r->devices, shared, r->gpus ? "GPU" : "core",
                 shared > 1 ? "s" : "");
}

int add_busy(struct text *text, int before, const char *title, const struct run_record *r) {
    double share = record_busy_machine(r);
    if (share < BUSY) return 0;
    text_add(text,
             before ? ", %s %.0f %%"
                    : "the machine was busy: %s waited for a CPU core %.0f %% of its time",
             title, 100 * share);
    return 1;
}

static double busy_percent(const struct run_record *r, int first, int last) {
    double busy = 0;
    for (int d = first; d <= last; d++)
        busy += (double)r->device[d].busy_ns / (last - first + 1);
    return 100 * busy * 1e-9 / r->training_seconds;
}

/* A phase in which device 0 works longer than the others on average. */
struct excess {
    enum phase phase;
    double amount; /* ns per step, positive */
};

static int longer_first(const void *left, const void *right) {
    double a = ((const struct excess *)left)->amount, b = ((const struct excess *)right)->amount;
    return (a < b) - (a > b);
}

/* Writes these phases, the longest first, and returns their number. */
static int time_excess(const struct run_record *r, struct excess out[PHASE_COUNT]) {
    int n = 0;
    for (int p = PHASE_INPUT; p < PHASE_COUNT; p++) {
        if (p == PHASE_EVALUATE || p == PHASE_PROOF || phase_is_of_host(p)) continue;
        double amount = device_value(r, 0, VALUE_PHASE, p) - others_value(r, VALUE_PHASE, p);
        if (amount > 0) out[n++] = (struct excess){(enum phase)p, amount};
    }
    qsort(out, (size_t)n, sizeof *out, longer_first);
    return n;
}

enum { MOST_CAUSES = 4 };
static const double WORTH_A_WORD = 0.003; /* as a fraction of the step */

void add_load(struct text *text, const struct run_record *dp, const struct run_record *ddp) {
    struct excess list[PHASE_COUNT];
    if (!dp || !*dp->modelled || dp->devices < 2 || dp->training_seconds <= 0) return;
    int n = time_excess(dp, list);
    double step_ns = record_per_step(dp, dp->training_seconds * 1e9);
    double idle_ns = record_per_step(dp, record_idle_ns(dp, 0));
    int digits = step_ns < 10e6 ? 3 : 1;
    text_add(text, "In DP, GPU 0 computes or copies for %.0f %% of a step, the others for %.0f %%",
             busy_percent(dp, 0, 0), busy_percent(dp, 1, dp->devices - 1));
    if (idle_ns > (n ? list[0].amount : 0) && idle_ns > WORTH_A_WORD * step_ns)
        text_add(text, "; GPU 0 waits %.*f of %.*f ms for kernels to be launched%s", digits,
                 idle_ns * 1e-6, digits, step_ns * 1e-6,
                 strstr(dp->modelled, "gil=off")
                     ? ""
                     : ", since one Python thread at a time launches for all GPUs");
    for (int i = 0; i < n && i < MOST_CAUSES && list[i].amount > WORTH_A_WORD * step_ns; i++)
        text_add(text, "%s %s %.*f ms", i ? "," : "; GPU 0 works longer by",
                 phase_name(list[i].phase), digits, list[i].amount * 1e-6);
    if (ddp && *ddp->modelled && ddp->training_seconds > 0)
        text_add(text, "; in DDP, the GPUs compute for %.0f %%",
                 busy_percent(ddp, 0, ddp->devices - 1));
    text_add(text, ".");
}
