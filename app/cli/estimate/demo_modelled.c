/* See demo_modelled.h. The emulated devices of the demo share the memory of one machine, where DP's
 * star through device 0 costs next to nothing. On GPUs it is what DP is known for. */
#include "cli/estimate/demo_modelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/estimate/ways.h"
#include "clock/choice.h"
#include "clock/trust.h"
#include "report/text.h"
#include "train/estimate/modelled.h"
#include "train/estimate/need.h"

enum { GPUS = 4, MACHINES = 2, SHOWN = 3 };
static const int shown[SHOWN] = {WAY_SINGLE, WAY_DP, WAY_DDP};

struct row {
    double ms[MACHINES];
};

/* One way on all machines: the run is written down once. */
static int time_way(struct run_config *c, int way, const struct clock_choice *choice,
                    struct row *row) {
    struct modelled m = {.record = NULL};
    struct clock_result *result = calloc(1, sizeof *result);
    int code = result ? OK : fail(ERR_MEMORY, "demo: no host memory");
    way_apply(way, c);
    if (!code) code = modelled_open(&m, c);
    for (int i = 0; !code && i < MACHINES; i++) {
        struct clock_config clock = clock_chosen(choice, 0, i);
        code = modelled_time(&m, &clock, result, NULL);
        row->ms[i] = (double)result->step_ns * 1e-6;
    }
    modelled_close(&m);
    free(result);
    return code;
}

static void print_row(const struct run_config *c, int way, const struct row *row,
                      const struct row *single) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", way_name(way), way == WAY_SINGLE ? "" : " x 4");
    printf("  %-12.12s%-8s", c->model.name, name);
    for (int i = 0; i < MACHINES; i++)
        printf("  %8.2f ms %5.2fx", row->ms[i], single->ms[i] / row->ms[i]);
    printf("\n");
}

static int show_model(struct run_config *c, const struct clock_choice *choice) {
    struct row single, row;
    for (int i = 0; i < SHOWN; i++) {
        CHECK(time_way(c, shown[i], choice, &row));
        if (!i) single = row;
        print_row(c, shown[i], &row, &single);
    }
    return OK;
}

static int show_models(const struct run_config *demo, const struct clock_choice *choice) {
    struct run_config other;
    struct run_config first = *demo;
    run_config_default(&other);
    snprintf(other.model.name, sizeof other.model.name, "resnet18");
    snprintf(other.data.name, sizeof other.data.name, "random");
    other.model.options.sample = (struct sample_shape){1, 28, 28};
    other.devices = first.devices = GPUS;
    other.dry = 1;
    CHECK(show_model(&first, choice));
    return strcmp(demo->model.name, other.model.name) ? show_model(&other, choice) : OK;
}

int demo_modelled(const struct run_config *demo) {
    static const struct clock_words words = {
        .gpu = "v100", .machine = "pc-pcie3,nvlink-4", .host = CLOCK_PYTORCH};
    struct clock_choice choice;
    struct run_config c = *demo, outline;
    struct text text = {.used = 0};
    int can, code = OK, rows;
    snprintf(c.device, sizeof c.device, "cpu");
    c.virtual_devices = VIRTUAL_DEFAULT;
    c.device_memory_count = 0;
    if (c.batch_size < GPUS) return OK;
    CHECK(need_outline(&c, &outline, &can));
    if (!can) return OK;
    code = clock_choose(&choice, &words);
    if (!code) {
        struct clock_config clock = clock_chosen(&choice, 0, 0);
        text_add(&text,
                 "A step of this on 4 V100, as an eager PyTorch program would take it: modelled, "
                 "+-%.0f %% (docs/clock.md), speed-up over single:",
                 trust_error(&clock, &rows));
        printf("\n");
        text_wrap(stdout, text_width(stdout), 0, 0, text.words);
        printf("  %-20s  %17s  %17s\n", "modelled", "over PCIe 3", "over NVLink");
        code = show_models(&outline, &choice);
        fflush(stdout);
    }
    clock_choice_free(&choice);
    return code;
}
