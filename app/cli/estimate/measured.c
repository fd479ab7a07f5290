/* Uses the time on one GPU that the user measured: see measured.h. */
#include "cli/estimate/measured.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "clock/trust.h"

int measured_read(const char *text, double *ms) {
    char time[24], unit[8];
    int end = 0;
    *ms = 0;
    if (!text) return OK;
    if (sscanf(text, "1:%23[0-9.eE+-]%7[ms]%n", time, unit, &end) != 2 || text[end] ||
        (strcmp(unit, "ms") && strcmp(unit, "s")) || parse_number("", time, 1e-9, 1e12, ms))
        return fail(ERR_USAGE,
                    "--measured: %s: give the time of a step on one GPU, such as 1:118ms", text);
    if (*unit == 's') *ms *= 1e3;
    return OK;
}

/* The clock's verdict on a time: none, a doubt, or that it is absurd. */
static int judge(const struct modelled *run, struct clock_config clock, double ms,
                 char doubt[MEASURED_DOUBT]) {
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
        snprintf(doubt, MEASURED_DOUBT,
                 "--measured: %g ms is %+.0f %% from the clock's %.4g ms, whose error is "
                 "+-%.0f %%: check the batch, --precision and --machine",
                 ms, apart, says, error);
    return OK;
}

int measured_give(double ms, const struct run_config *single, struct clock_config *clock,
                  char doubt[MEASURED_DOUBT]) {
    struct modelled run = {.record = NULL};
    *doubt = 0;
    if (!ms) return OK;
    int code = run_config_check(single);
    if (!code) code = modelled_open(&run, single);
    if (!code) code = judge(&run, *clock, ms, doubt);
    if (!code) code = modelled_give(&run, clock, ms);
    modelled_close(&run);
    return code;
}
