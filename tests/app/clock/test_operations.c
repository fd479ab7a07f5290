/* A schedule has as many operations of an eager program as PyTorch's profiler counts
 * (tests/golden/make_operations.py), and a sum of segments' gradients is none. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tests/harness/harness.h"
#include "train/estimate/modelled.h"

static const double NEAR = 0.05; /* views that copy, a loss of two operators */

static int count(const struct modelled *m, enum phase phase) {
    const struct program *programs;
    int programs_count, sum = 0, step = -1;
    cr_assert_eq(schedule_programs(m->schedule, &programs, &programs_count), 0);
    for (int p = 0; p < programs_count; p++)
        for (int i = 0; i < programs[p].count; i++) {
            const struct scheduled *e = &programs[p].list[i];
            int loss = phase == PHASE_FORWARD && e->facts.phase == PHASE_LOSS;
            if (e->kind != SCHEDULED_KERNEL || (e->facts.phase != phase && !loss)) continue;
            if (step < 0) step = e->facts.step;
            if (e->facts.step == step) sum += e->work.eager + e->work.additions;
        }
    return sum;
}

static void open_model(struct modelled *m, const char *name, int virtual_devices) {
    struct run_config c;
    run_config_default(&c);
    c.dry = 1;
    c.devices = 1;
    c.mode = MODE_SINGLE;
    c.virtual_devices = virtual_devices;
    c.batch_size = 4;
    int tokens = *name == 'g' || *name == 'b'; /* GPT, BERT */
    snprintf(c.model.name, sizeof c.model.name, "%s%s",
             strcmp(name, "resnet18") ? "" : "torchvision-", name);
    c.model.options.sample =
        tokens ? (struct sample_shape){128, 1, 1} : (struct sample_shape){3, 224, 224};
    c.model.options.classes = 1000;
    snprintf(c.data.name, sizeof c.data.name, "random");
    cr_assert_eq(run_config_check(&c), 0, "%s: %s", name, error_message());
    cr_assert_eq(modelled_open(m, &c), 0, "%s: %s", name, error_message());
}

Test(operations, as_many_as_pytorch_has, .timeout = 120) {
    char line[128], name[64];
    int forward, backward, models = 0;
    FILE *f = fopen("tests/golden/operations.txt", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        struct modelled m;
        if (sscanf(line, "%63s %d %d", name, &forward, &backward) != 3) continue;
        open_model(&m, name, 1);
        int f_here = count(&m, PHASE_FORWARD), b_here = count(&m, PHASE_BACKWARD);
        cr_expect_leq(fabs(f_here - (double)forward), NEAR * forward, "%s: forward has %d, not %d",
                      name, f_here, forward);
        cr_expect_leq(fabs(b_here - (double)backward), NEAR * backward,
                      "%s: backward has %d, not %d", name, b_here, backward);
        modelled_close(&m);
        models++;
    }
    fclose(f);
    cr_expect_eq(models, 15);
}

Test(operations, of_segments_are_those_of_one) {
    struct modelled one, four;
    open_model(&one, "resnet18", 1);
    open_model(&four, "resnet18", 4);
    cr_expect_eq(count(&one, PHASE_FORWARD), count(&four, PHASE_FORWARD));
    cr_expect_eq(count(&one, PHASE_BACKWARD), count(&four, PHASE_BACKWARD));
    modelled_close(&one);
    modelled_close(&four);
}
