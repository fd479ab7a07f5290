/* The learning rates of an epoch are PyTorch's. */
#include <math.h>

#include "tests/core/device/shared.h"
#include "nn/optimizer/optimizer.h"
#include "nn/optimizer/schedule.h"
#include "tests/golden/golden.h"

/* Of StepLR every bit must agree: there are products alone. A cosine may differ by a last place
 * between C libraries, and each epoch's rate is made of the one before. */
enum { EPOCHS = 24 };
static const double COSINE = EPOCHS * 0x1p-52;

static const struct {
    struct schedule schedule;
    double base;
} schedules[] = {{{SCHEDULE_STEP, .step_size = 1, .gamma = 0.7}, 1.0},
                 {{SCHEDULE_STEP, .step_size = 5, .gamma = 0.1}, 0.2},
                 {{SCHEDULE_COSINE, .t_max = 24}, 0.1},
                 {{SCHEDULE_COSINE, .t_max = 7}, 0.37},
                 {{SCHEDULE_COSINE, .t_max = 10, .eta_min = 0.01}, 0.1}};

Test(schedule, has_the_rates_of_pytorch, .timeout = 30) {
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        char key[32];
        snprintf(key, sizeof key, "schedule_%zu", i);
        struct golden_tensor rates = golden_tensor("tests/golden/optimizers.txt", key);
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            const struct schedule *s = &schedules[i].schedule;
            double want = rates.x[epoch];
            double got = schedule_rate(s, schedules[i].base, epoch);
            double bound = s->kind == SCHEDULE_STEP ? 0 : COSINE * schedules[i].base;
            cr_expect_leq(fabs(got - want), bound, "schedule %zu, epoch %d: %.17g, not %.17g", i,
                          epoch, got, want);
        }
    }
}

Test(schedule, none_keeps_the_rate, .timeout = 30) {
    struct schedule none = {.kind = SCHEDULE_NONE};
    cr_expect_eq(schedule_rate(&none, 0.3, 1000), 0.3);
}

/* ---- the numbers of an optimizer ---- */

Test(schedule, defaults_are_those_of_pytorch, .timeout = 30) {
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        struct optimizer_config o = optimizer_default((enum optimizer_kind)kind);
        cr_expect_eq((int)optimizer_named(optimizer_name(kind)), kind);
        cr_expect_eq(o.weight_decay, kind == OPTIMIZER_ADAMW ? 0.01 : 0);
        cr_expect_eq(o.epsilon, kind == OPTIMIZER_ADADELTA ? 1e-6 : 1e-8);
        cr_expect(o.beta1 == 0.9 && o.beta2 == 0.999 && o.rho == 0.9);
        cr_expect(o.momentum == 0 && o.dampening == 0 && !o.nesterov);
        MUST(optimizer_check(&o));
    }
    cr_expect_eq(optimizer_named("rmsprop"), OPTIMIZER_COUNT);
}

#define REFUSE(name, member, value, words)                           \
    do {                                                             \
        struct optimizer_config o = optimizer_default(name);         \
        o.member = (value);                                          \
        cr_expect_eq(optimizer_check(&o), ERR_USAGE, "%s", #member); \
        MUST_SAY(words);                                             \
    } while (0)

Test(schedule, wrong_numbers_are_refused_in_the_words_of_pytorch, .timeout = 30) {
    REFUSE(OPTIMIZER_SGD, momentum, -1, "momentum: -1: Invalid momentum value");
    REFUSE(OPTIMIZER_SGD, weight_decay, -1, "Invalid weight_decay value");
    REFUSE(OPTIMIZER_SGD, nesterov, 1, "Nesterov momentum requires a momentum and zero dampening");
    REFUSE(OPTIMIZER_SGD, dampening, NAN, "dampening: nan");
    REFUSE(OPTIMIZER_ADAMW, weight_decay, INFINITY, "Invalid weight_decay value");
    REFUSE(OPTIMIZER_ADADELTA, rho, 1.5, "Invalid rho value");
    REFUSE(OPTIMIZER_ADADELTA, epsilon, -1, "Invalid epsilon value");
    REFUSE(OPTIMIZER_ADAM, beta1, 1, "Invalid beta parameter at index 0");
    REFUSE(OPTIMIZER_ADAMW, beta2, -0.1, "Invalid beta parameter at index 1");
    struct optimizer_config o = optimizer_default(OPTIMIZER_SGD);
    o.momentum = 0.9, o.nesterov = 1, o.dampening = 0.1;
    cr_expect_eq(optimizer_check(&o), ERR_USAGE);
    MUST_SAY("Nesterov momentum requires a momentum and zero dampening");
    o.dampening = 0;
    MUST(optimizer_check(&o));
}
