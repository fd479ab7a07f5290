/* The median and the spread of known times, and which spans do not count. */
#include "base/error.h"
#include "tests/harness/harness.h"
#include "trace/step_times.h"

static struct span span_of(int step, int phase, int64_t start, int64_t length) {
    return (struct span){.step = step,
                         .phase = (uint8_t)phase,
                         .lane = LANE_COMPUTE,
                         .start_ns = start,
                         .end_ns = start + length};
}

Test(step_times, median_and_spread, .timeout = 30) {
    int64_t median, spread, values[101], one[] = {7}, two[] = {30, 10};
    median_and_spread(NULL, 0, &median, &spread);
    cr_expect(median == 0 && spread == 0);
    median_and_spread(one, 1, &median, &spread);
    cr_expect(median == 7 && spread == 0);
    median_and_spread(two, 2, &median, &spread);
    cr_expect(median == 20 && spread == 6, "%ld %ld", (long)median, (long)spread);
    /* 0 to 100 in another order: the middle 68 % are 16 to 84 */
    for (int i = 0; i < 101; i++)
        values[i] = i * 37 % 101;
    median_and_spread(values, 101, &median, &spread);
    cr_expect(median == 50 && spread == 34);
    /* One disturbed step moves neither. */
    values[100] = 1000000;
    median_and_spread(values, 101, &median, &spread);
    cr_expect(median == 50 && spread == 34, "%ld %ld", (long)median, (long)spread);
}

Test(step_times, of_a_run, .timeout = 30) {
    enum { PASSES = 2, FIRST = 10, STEPS = 5 };
    struct step_times times = {0};
    struct device_record d = {.device = 0};
    for (int step = 0; step < STEPS; step++)
        for (int pass = 0; pass < PASSES; pass++) {
            struct span s = span_of(FIRST + step, PHASE_FORWARD, 1000 * step + 10 * pass + 1, 100);
            step_times_add(&times, &s, FIRST);
        }
    /* none of these counts */
    struct span other = span_of(FIRST, PHASE_EVALUATE, 1, 5000);
    step_times_add(&times, &other, FIRST);
    other = span_of(FIRST, PHASE_FORWARD, 1, 5000), other.waiting = 1;
    step_times_add(&times, &other, FIRST);
    other = span_of(FIRST, PHASE_FORWARD, 1, 5000), other.lane = LANE_COMM;
    step_times_add(&times, &other, FIRST);
    other = span_of(-1, PHASE_FORWARD, 1, 5000);
    step_times_add(&times, &other, FIRST);
    other = span_of(FIRST + TRACE_STEPS, PHASE_FORWARD, 1, 5000);
    step_times_add(&times, &other, FIRST);
    cr_assert_eq(times.count, STEPS);
    step_times_sum_up(&times, &d);
    cr_expect(d.step_median_ns == 1000 && d.step_spread_ns == 0);
    step_times_free(&times);
}
