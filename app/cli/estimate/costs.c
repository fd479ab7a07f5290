/* `duet lesson`, and the end of `duet demo`. The emulated devices share the memory of one machine,
 * where DP's star through device 0 costs next to nothing. On GPUs the star is expensive. DP slows
 * down a small model and speeds up a large one. With many parameters and few samples DP loses on 2
 * GPUs and gains little on 4. docs/pictures/speed_up.py plots the output of `duet lesson`. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/estimate/ways.h"
#include "clock/choice.h"
#include "clock/trust.h"
#include "report/text.h"
#include "train/estimate/modelled.h"

enum { MACHINES = 2, MOST_GPUS = 4 };

/* Either a global batch, as in the chapter, or one for each GPU. */
struct subject {
    const char *model;
    int batch, batch_per_gpu, side; /* side: of a picture; 0: the model's own samples */
};
static const struct subject subjects[] = {
    {"lenet", 256, 0, 28}, {"resnet50", 0, 32, 224}, {"bert-base", 0, 4, 0}};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static struct run_config config_of(const struct subject *s, int gpus) {
    struct run_config c;
    run_config_default(&c);
    snprintf(c.model.name, sizeof c.model.name, "%s", s->model);
    snprintf(c.data.name, sizeof c.data.name, "random");
    if (s->side)
        c.model.options.sample = (struct sample_shape){s->side > 28 ? 3 : 1, s->side, s->side};
    if (s->side > 28) c.model.options.classes = 1000;
    c.devices = gpus;
    c.batch_size = s->batch ? s->batch : s->batch_per_gpu * gpus;
    c.dry = 1;
    return c;
}

/* One mode on all machines: the run is recorded once. */
static int time_way(struct run_config *c, int way, const struct clock_config machine[MACHINES],
                    double ms[MACHINES]) {
    struct modelled m = {.record = NULL};
    struct clock_result result;
    way_apply(way, c);
    int code = modelled_open(&m, c);
    for (int i = 0; !code && i < MACHINES; i++) {
        struct clock_config clock = machine[i];
        code = modelled_time(&m, &clock, &result, NULL);
        ms[i] = (double)result.step_ns * 1e-6;
    }
    modelled_close(&m);
    return code;
}

static void print_head(void) {
    printf("Eager PyTorch on V100s: modelled, +-%d %% (docs/clock.md); no GPU was measured.\n"
           "                             ms per step              speed-up over one GPU\n"
           "                      over PCIe 3   over NVLink   over PCIe 3   over NVLink\n"
           "model      GPUs batch     DP    DDP     DP    DDP     DP    DDP     DP    DDP\n",
           TRUST_UNMEASURED); /* DP of two of the models has this mark */
}

/* many, one: the same training on many GPUs and on one; their batches may differ. */
static int show_row(struct run_config one, const struct run_config *many,
                    const struct clock_config *machine) {
    static const int ways[2] = {WAY_DP, WAY_DDP};
    double one_ms[MACHINES], ms[2][MACHINES];
    CHECK(time_way(&one, WAY_SINGLE, machine, one_ms));
    printf("%-10.10s%5d%6d", many->model.name, many->devices, many->batch_size);
    if (many->devices == 1) return printf(" %6.2f on one GPU\n", one_ms[0]), OK;
    for (int way = 0; way < 2; way++) {
        struct run_config c = *many;
        CHECK(time_way(&c, ways[way], machine, ms[way]));
    }
    for (int i = 0; i < MACHINES; i++)
        printf(" %6.2f %6.2f", ms[0][i], ms[1][i]);
    for (int i = 0; i < MACHINES; i++)
        for (int way = 0; way < 2; way++)
            printf(" %5.2fx", one_ms[i] / ms[way][i] * many->batch_size / one.batch_size);
    printf("\n");
    return fflush(stdout), OK;
}

/* On least, 2 least ... MOST_GPUS. */
static int show_subject(const struct subject *s, int least, const struct clock_config *machine) {
    for (int gpus = least; gpus <= MOST_GPUS; gpus *= 2) {
        const struct run_config many = config_of(s, gpus);
        CHECK(show_row(config_of(s, 1), &many, machine));
    }
    return OK;
}

int costs_print(int brief) {
    static const struct clock_words words[MACHINES] = {{.gpu = "v100", .machine = "pc-pcie3"},
                                                       {.gpu = "v100", .machine = "nvlink-4"}};
    struct hardware *hardware[MACHINES] = {NULL};
    struct clock_config machine[MACHINES];
    int code = OK;
    for (int i = 0; !code && i < MACHINES; i++)
        code = clock_choose(&words[i], &hardware[i], &machine[i]);
    if (!code) print_head();
    for (int i = 0; !code && i < SUBJECTS; i++)
        code = show_subject(&subjects[i], brief ? MOST_GPUS : 1, machine);
    for (int i = 0; i < MACHINES; i++)
        hardware_free(hardware[i]);
    return code;
}

int command_lesson(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    if (argc && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
        return printf("usage: duet lesson\n\nPredicts DP and DDP on real GPUs for three models: "
                      "lenet loses with both,\nresnet50 gains with both, and over PCIe only DDP "
                      "speeds up bert-base on 2 GPUs\n(docs/lessons/lesson.md).\n"),
               0;
    return report_error(argc ? fail(ERR_USAGE,
                                    "%s: duet lesson takes no options: for another model use duet "
                                    "estimate --gpu v100 --model NAME",
                                    argv[0])
                             : costs_print(0));
}
