/* Tests the verdict on handmade records: equal ones, and ones with a single flipped hash, in every
 * possible place. The verdict must name the first difference in the order of steps, then values
 * before gradients, then devices, then parameters. */
#include "base/error.h"
#include "tests/harness/harness.h"
#include "train/compare/verdict.h"

enum { STEPS = 4, PARAMETERS = 3, DEVICES = 4, WIDTH = 2 * PARAMETERS };
static const char *const NAMES[PARAMETERS] = {"W1", "b1", "W2"};

/* A run on this number of devices, which all hold the same. */
static struct run_record make(enum run_mode mode, int devices) {
    struct run_record r = {.mode = mode,
                           .devices = devices,
                           .virtual_devices = DEVICES,
                           .bits_promised = 1,
                           .parameters = PARAMETERS,
                           .steps = STEPS};
    r.names = calloc(PARAMETERS, sizeof *r.names);
    r.losses = calloc(STEPS, sizeof *r.losses);
    for (int p = 0; p < PARAMETERS; p++)
        r.names[p] = strdup(NAMES[p]);
    for (int s = 0; s < STEPS; s++)
        r.losses[s] = 2.0 - s * 0.25;
    for (int d = 0; d < devices; d++) {
        r.hashes[d] = calloc(STEPS * WIDTH, sizeof *r.hashes[d]);
        r.final_hashes[d] = calloc(PARAMETERS, sizeof *r.final_hashes[d]);
        for (int i = 0; i < STEPS * WIDTH; i++)
            r.hashes[d][i] = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
        for (int i = 0; i < PARAMETERS; i++)
            r.final_hashes[d][i] = (uint64_t)i + 77;
    }
    return r;
}

static struct verdict judge(const struct run_record *a, const struct run_record *b) {
    struct verdict v;
    cr_assert_eq(verdict_judge(a, b, &v), 1);
    return v;
}

static char *printed(const struct verdict *v, const struct run_record *a,
                     const struct run_record *b) {
    static char text[2048];
    FILE *f = fmemopen(text, sizeof text, "w");
    verdict_print(f, 80, v, a, b);
    fclose(f);
    return text;
}

Test(verdict, equal, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), dp = make(MODE_DP, DEVICES),
                      ddp = make(MODE_DDP, DEVICES);
    for (int i = 0; i < STEPS * WIDTH; i++)
        if (i % WIDTH >= PARAMETERS)
            dp.hashes[2][i] =
                5; /* the other devices of DP hold no reduced gradient, so this does not count */
    struct verdict v = judge(&single, &dp);
    cr_assert(v.kind == VERDICT_EQUAL && v.steps == STEPS && v.bits_apart_at == -1);
    cr_assert_eq(judge(&single, &ddp).kind, VERDICT_EQUAL);
    cr_assert_eq(judge(&single, &single).kind, VERDICT_EQUAL);
    cr_assert(strstr(printed(&v, &single, &dp), "DP = single: identical to the bit after 4 steps"),
              "%s", printed(&v, &single, &dp));
    record_free(&single), record_free(&dp), record_free(&ddp);
}

/* Every hash that counts, on every device, flipped in its lowest or highest bit; the last ones are
 * those after the last step. */
Test(verdict, one_flipped_hash, .timeout = 60) {
    static const enum run_mode modes[] = {MODE_DP, MODE_DDP};
    struct run_record single = make(MODE_SINGLE, 1);
    for (int m = 0; m < 2; m++)
        for (int d = 0; d < DEVICES; d++)
            for (int i = 0; i < STEPS * WIDTH + PARAMETERS; i++) {
                int at_end = i >= STEPS * WIDTH, in_gradient = i % WIDTH >= PARAMETERS;
                if (m == 0 && d > 0 && in_gradient) continue;
                struct run_record other = make(modes[m], DEVICES);
                *(at_end ? &other.final_hashes[d][i % WIDTH] : &other.hashes[d][i]) ^=
                    i % 2 ? 1 : 1ull << 63;
                struct verdict v = judge(&single, &other);
                cr_assert(v.kind == VERDICT_DIFFERENT && v.step == i / WIDTH &&
                              v.parameter == i % PARAMETERS && v.device == d &&
                              v.in_gradient == in_gradient && !v.among_replicas,
                          "%s, device %d, hash %d: step %d, parameter %d, device %d",
                          mode_name(modes[m]), d, i, v.step, v.parameter, v.device);
                char want[128];
                snprintf(want, sizeof want,
                         "%s != single: first difference at step %d: the %s of %s on device %d\n",
                         m ? "DDP" : "DP", i / WIDTH, in_gradient ? "gradient" : "value",
                         NAMES[i % PARAMETERS], d);
                cr_assert_str_eq(printed(&v, &single, &other), want);
                record_free(&other);
            }
    record_free(&single);
}

/* The earliest difference is named: a value before a gradient of the same step, a step before any
 * later one. */
Test(verdict, the_first_is_named, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    ddp.final_hashes[0][0]++;
    ddp.hashes[0][3 * WIDTH]++;
    ddp.hashes[0][2 * WIDTH + PARAMETERS]++;
    struct verdict v = judge(&single, &ddp);
    cr_assert(v.step == 2 && v.in_gradient && v.device == 0 && v.parameter == 0);
    ddp.hashes[3][2 * WIDTH + 2]++;
    v = judge(&single, &ddp);
    cr_assert(v.step == 2 && !v.in_gradient && v.device == 3 && v.parameter == 2);
    ddp.hashes[2][1 * WIDTH + PARAMETERS + 1]++;
    v = judge(&single, &ddp);
    cr_assert(v.step == 1 && v.in_gradient && v.device == 2 && v.parameter == 1 &&
              v.bits_apart_at == 1);
    record_free(&ddp);
    ddp = make(MODE_DDP, DEVICES);
    ddp.steps--; /* a run with fewer steps is not the same */
    cr_assert(judge(&single, &ddp).kind == VERDICT_DIFFERENT &&
              judge(&single, &ddp).step == STEPS - 1);
    record_free(&single), record_free(&ddp);
}

/* Where bits are not promised the hashes of two runs may differ, but not those of one run's
 * replicas. */
Test(verdict, not_promised, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    struct verdict v;
    ddp.bits_promised = 0;
    snprintf(ddp.why_not, sizeof ddp.why_not, "nccl over 4 devices adds in its own order");
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert(v.bits_apart_at == -1 && v.loss_apart_at == -1 && v.final_loss_gap == 0);
    for (int d = 0; d < DEVICES; d++)
        ddp.hashes[d][WIDTH + PARAMETERS]++;
    ddp.losses[2] *= 1.02, ddp.losses[3] *= 0.5;
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert(v.bits_apart_at == 1 && v.loss_apart_at == 2 && fabs(v.final_loss_gap - 0.5) < 1e-12);
    v.kind = VERDICT_WITHIN, v.worst = 1e-6, v.bound = 9e-5;
    char *text = printed(&v, &single, &ddp);
    cr_assert(strstr(text, "DDP ~ single") && strstr(text, "allowed 9e-05") &&
                  strstr(text, "nccl over 4 devices") && strstr(text, "bits apart since step 1") &&
                  strstr(text, "since step 2"),
              "%s", text);
    v.kind = VERDICT_BEYOND, v.worst = 0.02, v.step = 1, v.parameter = 2;
    text = printed(&v, &single, &ddp);
    cr_assert(strstr(text, "DDP != single") && strstr(text, "beyond the bound: the gradient of W2"),
              "%s", text);
    v.kind = VERDICT_WITHIN, v.steps = 0;
    cr_assert(
        strstr(printed(&v, &single, &ddp), "DDP ? single: no step does the same work in both"));
    ddp.hashes[3][2 * WIDTH + 1]++;
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.among_replicas && v.step == 2 && v.device == 3 &&
              v.parameter == 1 && !v.in_gradient);
    cr_assert(
        strstr(printed(&v, &single, &ddp),
               "DDP != its own device 0: first difference at step 2: the value of b1 on device 3"));
    ddp.hashes[3][2 * WIDTH + 1]--;
    ddp.final_hashes[2][2]++;
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.among_replicas && v.step == STEPS && v.device == 2 &&
              v.parameter == 2);
    record_free(&single), record_free(&ddp);
    single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    ddp.virtual_devices = 2;
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert(strstr(v.why_not, "4 virtual devices against 2"), "%s", v.why_not);
    strcpy(ddp.sum_order, "tree over 4 devices");
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert(strstr(v.why_not, "tree over 4 devices against fold order"), "%s", v.why_not);
    record_free(&single), record_free(&ddp);
}

/* Every hash agrees, but what the tables show does not: a loss, or the accuracy. */
Test(verdict, results_differ, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    struct run_record *runs[] = {&single, &ddp};
    for (int i = 0; i < 2; i++) {
        runs[i]->epoch_count = 2;
        runs[i]->accuracy = calloc(2, sizeof(double));
        runs[i]->accuracy[1] = 0.25;
        runs[i]->valid_loss = calloc(2, sizeof(double));
        runs[i]->valid_loss[1] = 1.5;
    }
    cr_assert_eq(judge(&single, &ddp).kind, VERDICT_EQUAL);
    ddp.accuracy[1] *= 2; /* as if hits were counted twice */
    struct verdict v = judge(&single, &ddp);
    char *text = printed(&v, &single, &ddp);
    cr_assert_eq(v.kind, VERDICT_DIFFERENT);
    cr_assert(strstr(text, "DDP != single: first difference: the test accuracy after epoch 1 is "
                           "0.5, not\n  0.25"),
              "%s", text);
    ddp.accuracy[1] = 0.25, ddp.valid_loss[1] = 1.75; /* losses that are counted twice */
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_DIFFERENT && !strcmp(v.result, "valid_loss") && v.step == 1);
    ddp.valid_loss[1] = single.valid_loss[1];
    for (int s = 0; s < STEPS; s++)
        ddp.losses[s] *= 2;
    v = judge(&single, &ddp);
    text = printed(&v, &single, &ddp);
    cr_assert(strstr(text, "first difference: the loss of step 0 is 4, not 2"), "%s", text);
    ddp.losses[0] = 2, ddp.losses[1] = NAN; /* only on one side */
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 1 && v.result);
    record_free(&single), record_free(&ddp);
}

/* Losses that are not finite: the same on both sides is no difference, on one side it is. */
Test(verdict, losses_not_finite, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    struct verdict v;
    ddp.bits_promised = 0;
    for (int s = 1; s < STEPS; s++)
        single.losses[s] = ddp.losses[s] = s % 2 ? INFINITY : NAN;
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert(v.loss_apart_at == -1 && v.final_loss_gap == 0);
    ddp.losses[2] = 1;
    cr_assert_eq(verdict_judge(&single, &ddp, &v), 0);
    cr_assert_eq(v.loss_apart_at, 2);
    cr_assert_eq(v.not_finite_at, 1);
    record_free(&single), record_free(&ddp);
}

/* Runs that are identical but not finite say so. */
Test(verdict, equal_but_not_finite, .timeout = 30) {
    struct run_record single = make(MODE_SINGLE, 1), ddp = make(MODE_DDP, DEVICES);
    struct verdict v = judge(&single, &ddp);
    cr_assert_eq(v.not_finite_at, -1);
    for (int s = 2; s < STEPS; s++)
        single.losses[s] = ddp.losses[s] = NAN;
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_EQUAL && v.not_finite_at == 2);
    cr_assert_str_eq(printed(&v, &single, &ddp),
                     "DDP = single: identical to the bit, but the loss is not finite since step "
                     "2:\n  from there on this proves nothing\n");
    ddp.hashes[1][2 * WIDTH]++; /* a NaN may have other bits */
    cr_assert_eq(judge(&single, &ddp).kind, VERDICT_EQUAL);
    single.losses[2] = 1; /* on one side it is finite */
    cr_assert_eq(judge(&single, &ddp).kind, VERDICT_DIFFERENT);
    single.losses[2] = NAN, ddp.hashes[1][2 * WIDTH]--, ddp.hashes[1][WIDTH]++;
    v = judge(&single, &ddp);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 1, "before the losses end");
    record_free(&single), record_free(&ddp);
}
