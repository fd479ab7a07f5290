/* See choice.h. */
#include "clock/choice.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/parse.h"
#include "base/text/text.h"
#include "clock/trust.h"

/* The machine: a name, a file of the user's own, which adds to the table and whose last machine is
 * taken, or a PC with the PCIe of the GPU. */
static int choose_machine(const struct hardware *h, const char *text, int is_file,
                          struct clock_config *c) {
    char pc[HARDWARE_NAME];
    snprintf(pc, sizeof pc, "pc-pcie%d", c->gpu->pcie);
    if (!is_file) return hardware_find_machine(h, "--machine", *text ? text : pc, &c->machine);
    c->machine = h->last;
    if (c->machine) return OK;
    return fail(ERR_USAGE, "--machine: %s: the file has no machine: add a machine line", text);
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

int clock_choose(const struct clock_words *w, struct hardware **hardware, struct clock_config *c) {
    const char *text = w->machine;
    int is_file = *text && (strchr(text, '/') || strchr(text, '.') || !access(text, R_OK));
    *hardware = NULL;
    *c = (struct clock_config){.what_if = what_if_none(), .precision = w->precision};
    if (!*w->gpu)
        return fail(ERR_USAGE, "--gpu: is missing: all modelled times need a GPU: give a name that "
                               "duet devices --gpus lists");
    CHECK(hardware_open(hardware, is_file ? text : NULL));
    CHECK(hardware_find_gpu(*hardware, "--gpu", w->gpu, &c->gpu));
    CHECK(choose_machine(*hardware, text, is_file, c));
    return *w->what_if ? read_what_if(&c->what_if, w->what_if) : OK;
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
