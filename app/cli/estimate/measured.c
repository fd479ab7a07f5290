/* Uses the time on one GPU that the user measured: see measured.h. */
#include "cli/estimate/measured.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/options/run_options.h"
#include "clock/trust.h"

int measured_read(struct measured *m, const char *text) {
    for (const char *at = text; at && (at == text || at[-1]); m->times++) {
        char gpus[16], time[24], unit[8];
        int64_t batch = 0;
        int end = 0;
        double ms;
        if (m->times == MEASURED_TIMES ||
            sscanf(at, "%15[x0-9]:%23[0-9.eE+-]%7[ms]%n", gpus, time, unit, &end) != 3 ||
            (strcmp(gpus, "1") &&
             (strncmp(gpus, "1x", 2) || parse_int("", gpus + 2, 1, LARGEST_BATCH, &batch))) ||
            (at[end] && at[end] != ',') || (strcmp(unit, "ms") && strcmp(unit, "s")) ||
            parse_number("", time, 1e-9, 1e12, &ms))
            return fail(ERR_USAGE,
                        "--measured: %s: give the time of a step on one GPU, such as 1:118ms, or "
                        "of two batches, such as 1:118ms,1x64:230ms",
                        text);
        m->batch[m->times] = (int)batch;
        m->ms[m->times] = *unit == 's' ? ms * 1e3 : ms;
        at += end + 1;
    }
    return OK;
}

/* The clock's verdict on a time: none, a doubt, or that it is absurd. */
static int doubt(struct measured *m, const struct modelled *run, struct clock_config clock,
                 double ms) {
    enum { ABSURD = 10 };
    struct clock_result result;
    int rows;
    CHECK(modelled_time(run, &clock, &result, NULL));
    double says = (double)result.step_ns * 1e-6, apart = 100 * (ms / says - 1),
           error = trust_error(&clock, &rows);
    if (ms > ABSURD * says || ms * ABSURD < says)
        return fail(ERR_USAGE,
                    "--measured: %g ms is %.3g times the clock's %.4g ms: check the unit, the "
                    "batch and --machine",
                    ms, ms / says, says);
    if (fabs(apart) > error)
        snprintf(m->doubt, sizeof m->doubt,
                 "--measured: %g ms is %+.0f %% from the clock's %.4g ms, whose error is "
                 "+-%.0f %%: check the batch, --precision and --machine",
                 ms, apart, says, error);
    return OK;
}

int measured_give(struct measured *m, const struct run_config *single, struct clock_config *clock) {
    double factor[MEASURED_TIMES] = {1, 1};
    int rows;
    for (int i = 0; i < m->times; i++) {
        struct run_config c = *single;
        struct modelled run = {.record = NULL};
        if (m->batch[i]) c.batch_size = m->batch[i];
        clock->given = 0;
        int code = run_config_check(&c);
        if (!code) code = modelled_open(&run, &c);
        if (!code) code = doubt(m, &run, *clock, m->ms[i]);
        if (!code) code = modelled_give(&run, clock, m->ms[i]);
        modelled_close(&run);
        if (code) return code;
        factor[i] = clock->given;
    }
    clock->given_error = m->batch[0] && m->batch[0] != single->batch_size ? -1 : 0;
    if (m->times < MEASURED_TIMES) return OK;
    clock->given = 0;
    double apart = 100 * fabs(log(factor[1] / factor[0])), error = trust_error(clock, &rows);
    if (apart > error)
        return fail(ERR_USAGE,
                    "--measured: the two times disagree by %.0f %% with the clock, whose error is "
                    "+-%.0f %%: check them, their batches and --machine",
                    apart, error);
    clock->given = sqrt(factor[0] * factor[1]);
    clock->given_error = apart / 2;
    return OK;
}
