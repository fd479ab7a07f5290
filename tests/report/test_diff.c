/* Which differences of two runs count: times and speeds are judged by the spreads of both. */
#include "report/diff.h"

#include <math.h>

#include "tests/harness/harness.h"

static struct run_record timed(int64_t median, int64_t spread) {
    struct run_record r = {.timed = 1, .devices = 2, .steps = 10, .images = 1000};
    r.training_seconds = 1e9 / (double)median;
    for (int d = 0; d < 2; d++) {
        struct device_record *x = &r.device[d];
        x->phase_median_ns[PHASE_FORWARD] = median + d, x->phase_spread_ns[PHASE_FORWARD] = spread;
        x->phase_p90_ns[PHASE_FORWARD] = median + 2 * spread;
        x->step_median_ns = median, x->step_spread_ns = spread;
        x->comm_ns = 50 * (d + 1);
    }
    return r;
}

Test(diff, times_by_their_spread, .timeout = 30) {
    static const struct {
        int64_t a, spread_a, b, spread_b;
        int within;
    } table[] = {
        {1000, 30, 1050, 40, 1}, /* the root of 30^2 + 40^2 is 50 */
        {1000, 30, 1051, 40, 0}, {1051, 30, 1000, 40, 0},
        {1000, 0, 1000, 0, 1},   {1000, 0, 1001, 0, 0},
    };
    int zero[2] = {0, 0}, one[2] = {1, 1};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct run_record a = timed(table[i].a, table[i].spread_a),
                          b = timed(table[i].b, table[i].spread_b);
        struct diff_time t = diff_time(&a, &b, PHASE_FORWARD, 0, zero);
        cr_expect(t.known && t.within_spread == table[i].within, "row %zu", i);
        cr_expect(t.p50[0] == (double)table[i].a && t.p50[1] == (double)table[i].b &&
                  t.p90[0] == (double)(table[i].a + 2 * table[i].spread_a));
        t = diff_time(&a, &b, DIFF_STEP, 0, one);
        cr_expect_eq(t.within_spread, table[i].within, "row %zu, the step", i);
        t = diff_time(&a, &b, DIFF_COMM, 0, one);
        cr_expect(!t.known && !t.within_spread && t.p50[0] == 7.5, "(50 + 100) / 2 / 10 steps");
        t = diff_time(&a, &b, PHASE_FORWARD, 1, one);
        cr_expect_eq(t.p50[0], (double)table[i].a + 1, "device 1 alone");
    }
}

/* The speed is judged by the steps where both runs are timed, else by whole epochs. */
Test(diff, speed_by_steps_or_epochs, .timeout = 30) {
    struct run_record a = timed(1000, 30), b = timed(1040, 40);
    struct diff_speed s = diff_speed(&a, &b);
    cr_expect(s.known && s.within_spread);
    b = timed(1200, 40);
    s = diff_speed(&a, &b);
    cr_expect(s.known && !s.within_spread);
    a.timed = 0;
    s = diff_speed(&a, &b);
    cr_expect(!s.known && !s.within_spread, "no epochs");
    double seconds[2][5] = {{1, 1.1, 0.9, 1, 9}, {1.02, 1.12, 0.92, 1.02, 9}};
    struct run_record *runs[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        runs[i]->epoch_seconds = seconds[i];
        runs[i]->epoch_count = 5, runs[i]->steps = 9, runs[i]->steps_per_epoch = 2;
        runs[i]->training_seconds = i ? 1.02 : 1;
    }
    s = diff_speed(&a, &b);
    cr_expect(s.known && s.within_spread, "the fifth epoch is not whole and does not count");
    runs[1]->training_seconds = 2;
    s = diff_speed(&a, &b);
    cr_expect(s.known && !s.within_spread);
    runs[1]->epoch_count = 3; /* two of them whole */
    cr_expect_eq(diff_speed(&a, &b).known, 0);
}

Test(diff, losses, .timeout = 30) {
    double x[] = {2, 1, NAN, 0.5}, y[] = {1, NAN, 0.5, 0.25};
    struct run_record a = {.steps = 4, .losses = x}, b = {.first_step = 1, .steps = 4, .losses = y};
    struct diff_losses l = diff_losses(&a, &b);
    cr_expect(l.compared == 3 && l.first == -1 && l.worst == 0, "steps 1 to 3: NaNs are equal");
    y[2] = 0.4;
    l = diff_losses(&a, &b);
    cr_expect(l.first == 3 && l.a == 0.5 && l.b == 0.4);
    cr_expect_float_eq(l.worst, 0.2, 1e-12);
    y[1] = 3;
    l = diff_losses(&a, &b);
    cr_expect(l.first == 2 && isnan(l.a) && l.b == 3);
    b.first_step = 4;
    cr_expect_eq(diff_losses(&a, &b).compared, 0);
    b.losses = NULL, b.first_step = 0;
    cr_expect_eq(diff_losses(&a, &b).compared, 0, "a record of estimate has none");
}
