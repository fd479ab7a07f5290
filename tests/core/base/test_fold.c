/* Fold order: the pairs and the depth-first schedule add by the rule, and the schedule needs few
 * buffers. Folding first the virtual devices of each device and then the devices gives the bits of
 * folding all virtual devices at once. */
#include "tests/harness/harness.h"

#include "tests/core/base/fold_float.h"
#include "base/random.h"

enum { TEXT_BYTES = 1024 };

/* Terms of very different sizes and both signs: another order is another sum, nearly always. */
static void fill(struct rng *r, double *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = ldexp(rng_double(r) - 0.5, (int)(rng_u32(r) % 40) - 20);
}

/* The rule in words: "(a+b)" is a sum. */
static void sum_text(char text[][TEXT_BYTES], int to, int from) {
    char sum[2 * TEXT_BYTES + 4];
    snprintf(sum, sizeof sum, "(%s+%s)", text[to], text[from]);
    cr_assert_lt(strlen(sum), (size_t)TEXT_BYTES);
    memcpy(text[to], sum, strlen(sum) + 1);
}

static void rule_text(int n, char *out) {
    static char term[MAX_DEVICES][TEXT_BYTES];
    for (int i = 0; i < n; i++)
        snprintf(term[i], TEXT_BYTES, "%d", i);
    while (n > 1) {
        int h = n / 2 + n % 2;
        for (int r = 0; r < h; r++)
            if (r + h < n) sum_text(term, r, r + h);
        n = h;
    }
    memcpy(out, term[0], TEXT_BYTES);
}

static void pairs_text(int n, char *out) {
    static char term[MAX_DEVICES][TEXT_BYTES];
    for (int i = 0; i < n; i++)
        snprintf(term[i], TEXT_BYTES, "%d", i);
    int pairs = 0;
    for (struct fold f = fold_begin(n); fold_next(&f); pairs++) {
        cr_assert(f.to >= 0 && f.to < f.from && f.from < n);
        sum_text(term, f.to, f.from);
    }
    cr_assert_eq(pairs, n - 1);
    memcpy(out, term[0], TEXT_BYTES);
}

static void schedule_text(int n, char *out) {
    static char buffer[FOLD_MAX_BUFFERS][TEXT_BYTES];
    struct fold_step steps[2 * MAX_DEVICES];
    int buffers, made[MAX_DEVICES] = {0}, count = fold_schedule(n, steps, &buffers);
    cr_assert_eq(count, 2 * n - 1);
    for (int i = 0; i < count; i++) {
        struct fold_step s = steps[i];
        cr_assert(s.to >= 0 && s.to < buffers && s.from >= 0 && s.from < buffers);
        if (s.add) {
            sum_text(buffer, s.to, s.from);
        } else {
            cr_assert_eq(made[s.term]++, 0, "n %d: term %d is made twice", n, s.term);
            snprintf(buffer[s.to], TEXT_BYTES, "%d", s.term);
        }
    }
    memcpy(out, buffer[0], TEXT_BYTES);
}

Test(fold, pairs_and_schedule_add_as_the_rule_says, .timeout = 30) {
    static char want[TEXT_BYTES], got[TEXT_BYTES];
    for (int n = 1; n <= MAX_DEVICES; n++) {
        rule_text(n, want);
        pairs_text(n, got);
        cr_assert_str_eq(got, want, "n %d", n);
        schedule_text(n, got);
        cr_assert_str_eq(got, want, "n %d", n);
    }
    schedule_text(5, got);
    cr_assert_str_eq(got, "(((0+3)+2)+(1+4))");
}

Test(fold, schedule_needs_few_buffers, .timeout = 30) {
    struct fold_step steps[2 * MAX_DEVICES];
    int buffers;
    for (int n = 1; n <= MAX_DEVICES; n++) {
        fold_schedule(n, steps, &buffers);
        cr_assert_leq(buffers, 1 + (int)ceil(log2(n)), "n %d takes %d buffers", n, buffers);
    }
    cr_assert_eq(fold_schedule(0, steps, &buffers), 0);
    cr_assert_eq(buffers, 0);
    cr_assert_eq(fold_schedule(MAX_DEVICES + 1, steps, &buffers), 0);
}

Test(fold, schedule_and_sums_have_the_same_bits, .timeout = 30) {
    struct rng r;
    rng_seed(&r, 1);
    for (int n = 1; n <= MAX_DEVICES; n++) {
        double x[MAX_DEVICES], buffer[FOLD_MAX_BUFFERS];
        float y[MAX_DEVICES], float_buffer[FOLD_MAX_BUFFERS];
        struct fold_step steps[2 * MAX_DEVICES];
        int buffers, count = fold_schedule(n, steps, &buffers);
        fill(&r, x, n);
        for (int i = 0; i < n; i++)
            x[i] = y[i] = (float)x[i];
        for (int i = 0; i < count; i++) {
            int to = steps[i].to;
            if (steps[i].add) {
                buffer[to] += buffer[steps[i].from];
                float_buffer[to] += float_buffer[steps[i].from];
            } else {
                buffer[to] = x[steps[i].term];
                float_buffer[to] = y[steps[i].term];
            }
        }
        cr_assert(float_buffer[0] == fold_sum_float(y, n), "n %d, float", n);
        cr_assert(buffer[0] == fold_sum(x, n), "n %d", n);
    }
    cr_assert(fold_sum(NULL, 0) == 0 && fold_sum_float(NULL, 0) == 0);
}

/* Device r of W holds the virtual devices r, r + W, ... */
static double fold_locally_first(const double *x, int v, int w) {
    double device[MAX_DEVICES], segment[MAX_DEVICES];
    for (int r = 0; r < w; r++) {
        for (int s = 0; s < v / w; s++)
            segment[s] = x[r + s * w];
        device[r] = fold_sum(segment, v / w);
    }
    return fold_sum(device, w);
}

static int same_bits(struct rng *r, int v, int w) {
    double x[MAX_DEVICES], copy[MAX_DEVICES];
    fill(r, x, v);
    memcpy(copy, x, sizeof copy);
    return fold_sum(copy, v) == fold_locally_first(x, v, w);
}

/* Where it fits the bits are equal for any terms; where it does not, some terms show it. */
Test(fold, fits_exactly_where_the_bits_are_equal, .timeout = 60) {
    struct rng r;
    rng_seed(&r, 2);
    int fits = 0, does_not = 0;
    for (int v = 1; v <= MAX_DEVICES; v++)
        for (int w = 1; w <= v; w++) {
            if (v % w) {
                cr_assert_eq(fold_fits(v, w), 0, "V %d is no multiple of W %d", v, w);
                continue;
            }
            int equal = 1;
            for (int trial = 0; trial < 20; trial++)
                equal &= same_bits(&r, v, w);
            cr_assert_eq(fold_fits(v, w), equal, "V %d, W %d", v, w);
            if (equal)
                fits++;
            else
                does_not++;
        }
    cr_assert(fits > 100 && does_not > 50, "%d fit, %d do not", fits, does_not);
    cr_assert(!fold_fits(4, 0) && !fold_fits(0, 1) && !fold_fits(-4, 2));
}
