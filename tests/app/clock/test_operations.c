/* Checks that a schedule has as many operations of an eager program as PyTorch's profiler counts
 * (tests/golden/make_operations.py). A sum of segments' gradients is no operation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "clock/cost.h"
#include "models/model_file.h"
#include "tests/harness/harness.h"
#include "train/estimate/modelled.h"

static const double NEAR = 0.05; /* views that copy, a loss of two operators */

/* The kernels of one step in this phase; the loss belongs to forward. */
static double sum_of(const struct modelled *m, enum phase phase,
                     double of(const struct scheduled *kernel)) {
    const struct program *programs;
    int programs_count, step = -1;
    double sum = 0;
    cr_assert_eq(schedule_programs(m->schedule, &programs, &programs_count), 0);
    for (int p = 0; p < programs_count; p++)
        for (int i = 0; i < programs[p].count; i++) {
            const struct scheduled *e = &programs[p].list[i];
            int loss = phase == PHASE_FORWARD && e->facts.phase == PHASE_LOSS;
            if (e->kind != SCHEDULED_KERNEL || (e->facts.phase != phase && !loss)) continue;
            if (step < 0) step = e->facts.step;
            if (e->facts.step == step) sum += of(e);
        }
    return sum;
}

static double operations(const struct scheduled *e) {
    return e->work.eager + e->work.additions;
}

/* What autocast adds on a machine whose host takes a microsecond for an operation. */
static double casts(const struct scheduled *e) {
    static const struct gpu_spec gpu = {.fp32 = 1, .half = 1, .gbs = 1, .reached = 1};
    static const struct machine machine = {.forward_us = 1, .backward_us = 1};
    struct clock_config plain = {.gpu = &gpu,
                                 .machine = &machine,
                                 .precision = CLOCK_FP32,
                                 .what_if = what_if_none()},
                        half = plain;
    half.precision = CLOCK_AMP;
    return round((double)(cost_issue_ns(&half, e) - cost_issue_ns(&plain, e)) * 1e-3);
}

/* A model that estimates know; or one of tests/golden/exported, whose file is freed after m. */
static struct model_file *open_model(struct modelled *m, const char *name, int virtual_devices) {
    struct run_config c;
    struct model_file *file = NULL;
    run_config_default(&c);
    if (!strncmp(name, "hf-", 3)) {
        char path[96];
        snprintf(path, sizeof path, "tests/golden/exported/%s.duet", name);
        cr_assert_eq(model_file_open(&file, path), 0, "%s", error_message());
        run_config_own(&c, file->model);
    } else {
        int tokens = *name == 'g' || *name == 'b'; /* GPT, BERT */
        snprintf(c.model.name, sizeof c.model.name, "%s%s",
                 strcmp(name, "resnet18") ? "" : "torchvision-", name);
        c.model.options.sample =
            tokens ? (struct sample_shape){128, 1, 1} : (struct sample_shape){3, 224, 224};
        c.model.options.classes = 1000;
    }
    c.dry = 1;
    c.devices = 1;
    c.mode = MODE_SINGLE;
    c.virtual_devices = virtual_devices;
    c.batch_size = 4;
    snprintf(c.data.name, sizeof c.data.name, "random");
    cr_assert_eq(run_config_check(&c), 0, "%s: %s", name, error_message());
    cr_assert_eq(modelled_open(m, &c), 0, "%s: %s", name, error_message());
    return file;
}

static void expect_near(const char *name, const char *what, double got, int want) {
    cr_expect_leq(fabs(got - want), NEAR * want, "%s: %s has %g, not %d", name, what, got, want);
}

/* The rows of models, or those of casts. Returns how many there are. */
static int compare(double of(const struct scheduled *), int of_casts) {
    char line[128], name[64], mark[8];
    int forward, backward, models = 0;
    FILE *f = fopen("tests/golden/operations.txt", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        struct modelled m;
        int words = sscanf(line, "%63s %d %d %7s", name, &forward, &backward, mark);
        if (words != 3 + of_casts) continue;
        struct model_file *file = open_model(&m, name, 1);
        expect_near(name, "forward", sum_of(&m, PHASE_FORWARD, of), forward);
        expect_near(name, "backward", sum_of(&m, PHASE_BACKWARD, of), backward);
        modelled_close(&m);
        model_file_free(file);
        models++;
    }
    fclose(f);
    return models;
}

Test(operations, as_many_as_pytorch_has_also_under_autocast, .timeout = 120) {
    cr_expect_eq(compare(operations, 0), 22);
    cr_expect_eq(compare(casts, 1), 3);
}

Test(operations, of_segments_are_those_of_one) {
    struct modelled one, four;
    open_model(&one, "resnet18", 1);
    open_model(&four, "resnet18", 4);
    for (enum phase p = PHASE_FORWARD; p <= PHASE_BACKWARD; p++) {
        cr_expect_eq(sum_of(&one, p, operations), sum_of(&four, p, operations));
        cr_expect_eq(sum_of(&one, p, casts), sum_of(&four, p, casts));
    }
    modelled_close(&one);
    modelled_close(&four);
}
