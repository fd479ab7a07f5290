/* See choice.h. */
#include "clock/choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/parse.h"
#include "base/text/text.h"
#include "clock/trust.h"

/* ---- hardware ---- */

/* What a list names: GPUs or machines. */
static int read_list(struct clock_choice *c, const char *text, int gpus) {
    const char *what = gpus ? "--gpu" : "--machine";
    for (const char *at = text;; at++) {
        char one[HARDWARE_NAME];
        size_t length = strcspn(at, ",");
        if (length >= sizeof one)
            return fail(ERR_USAGE, "'%.60s': a name has at most %d characters", at,
                        HARDWARE_NAME - 1);
        memcpy(one, at, length);
        one[length] = 0;
        int i = gpus ? c->gpus++ : c->machines++;
        if (i == CHOICE_MOST) return fail(ERR_USAGE, "%s: at most %d at once", what, CHOICE_MOST);
        CHECK(gpus ? hardware_find_gpu(c->hardware, what, one, &c->gpu[i])
                   : hardware_find_machine(c->hardware, what, one, &c->machine[i]));
        at += length;
        if (!*at) return OK;
    }
}

/* A PC with the PCIe of each GPU. */
static int default_machines(struct clock_choice *c) {
    c->is_default = c->machines = 1;
    for (int i = 0; i < c->gpus; i++) {
        char name[HARDWARE_NAME];
        snprintf(name, sizeof name, "pc-pcie%d", c->gpu[i]->pcie);
        CHECK(hardware_find_machine(c->hardware, "--machine", name, &c->machine[i]));
    }
    return OK;
}

/* A file of the user's own adds to the table; its last machine is taken. */
static int read_hardware(struct clock_choice *c, const struct clock_words *w) {
    const char *text = w->machine;
    int is_file = *text && (strchr(text, '/') || strchr(text, '.') || !access(text, R_OK));
    CHECK(hardware_open(&c->hardware, is_file ? text : NULL));
    CHECK(read_list(c, w->gpu, 1));
    if (!*text) return default_machines(c);
    if (!is_file) return read_list(c, text, 0);
    c->machine[0] = c->hardware->last;
    if (!c->machine[0])
        return fail(ERR_USAGE, "--machine: %s: the file has no machine: add a line of one", text);
    c->machines = 1;
    return OK;
}

static const char *const parts[IF_PARTS] = {"link", "launch", "compute", "memory", "gil"};

static int read_what_if(struct what_if *what_if, const char *text) {
    for (const char *at = text;; at++) {
        char key[32] = "", value[32] = "";
        int k = 0;
        if (sscanf(at, "%31[^=,]=%31[^,]", key, value) < 2)
            return fail(ERR_USAGE, "--what-if: '%.40s': give KEY=X, such as link=2x,launch=0", at);
        while (k < IF_PARTS && strcmp(key, parts[k]))
            k++;
        if (k == IF_PARTS) return unknown_value("--what-if", key, parts, IF_PARTS);
        double *by = &what_if->by[k], least = k == IF_LAUNCH ? 0 : 0.001;
        if (k == IF_GIL && strcmp(value, "off") && strcmp(value, "on"))
            return fail(ERR_USAGE, "--what-if: gil=%s: give on or off", value);
        size_t last = strlen(value) - 1;
        if (last && value[last] == 'x') value[last] = 0;
        if (k == IF_GIL)
            *by = strcmp(value, "off") != 0;
        else
            CHECK(parse_number("--what-if", value, least, 1000, by));
        at += strcspn(at, ",");
        if (!*at) return OK;
    }
}

int clock_choose(struct clock_choice *c, const struct clock_words *w) {
    *c = (struct clock_choice){.what_if = what_if_none(), .precision = w->precision};
    if (!*w->gpu)
        return fail(ERR_USAGE, "--gpu: it is missing: times of links, machines and hosts are those "
                               "of a GPU: give a name that duet devices --gpus lists");
    CHECK(read_hardware(c, w));
    return *w->what_if ? read_what_if(&c->what_if, w->what_if) : OK;
}

void clock_choice_free(struct clock_choice *c) {
    hardware_free(c->hardware);
    *c = (struct clock_choice){.gpus = 0};
}

struct clock_config clock_chosen(const struct clock_choice *c, int gpu, int machine) {
    return (struct clock_config){.gpu = c->gpu[gpu],
                                 .machine = c->machine[c->is_default ? gpu : machine],
                                 .precision = c->precision,
                                 .what_if = c->what_if};
}

void clock_add_what_if(const struct what_if *w, char *text, size_t bytes) {
    const char *before = ", if ";
    for (int i = 0; i < IF_PARTS; i++) {
        char by[16] = "off";
        if (w->by[i] == 1) continue;
        if (i != IF_GIL) snprintf(by, sizeof by, "%.4g", w->by[i]);
        text_append(text, bytes, "%s%s=%s", before, parts[i], by);
        before = ",";
    }
}

const char *clock_precision_name(enum clock_precision precision) {
    static const char *const names[] = {"default", "fp32", "tf32", "amp"};
    return names[precision];
}

void clock_mark(const struct clock_config *clock, int devices, char mark[CLOCK_MARK]) {
    int rows;
    double error = trust_error(clock, &rows);
    snprintf(mark, CLOCK_MARK, "%d x %s, %s, host pytorch%s%s, +-%.0f %%", devices,
             clock->gpu->name, clock->machine->name, clock->precision ? ", precision " : "",
             clock->precision ? clock_precision_name(clock->precision) : "", error);
    clock_add_what_if(&clock->what_if, mark, CLOCK_MARK);
}
