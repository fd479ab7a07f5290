/* See what_if.h. Each change is one more simulation of the same schedule. */
#include "cli/estimate/what_if.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/estimate/ways.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/estimate/modelled.h"
#include "train/estimate/retime.h"

enum { MOST_CHANGES = IF_PARTS + 1 };

struct change {
    struct what_if what_if;
    char words[64];
};

/* Each change alone, and after several of them all together. */
static int changes_of(const struct what_if *w, struct change list[MOST_CHANGES]) {
    static const char *const words[IF_PARTS] = {
        "links %.4gx as fast", "launches %.4gx as long", "products and convolutions %.4gx as fast",
        "the GPUs' memory %.4gx as fast", "no interpreter lock"};
    int n = 0;
    for (int i = 0; i < IF_PARTS; i++) {
        int free = i == IF_LAUNCH && w->by[i] == 0;
        if (w->by[i] == 1) continue;
        list[n].what_if = what_if_none();
        list[n].what_if.by[i] = w->by[i];
        if (free)
            snprintf(list[n++].words, sizeof list->words, "no launch cost");
        else
            snprintf(list[n++].words, sizeof list->words, words[i], w->by[i]);
    }
    if (n > 1) list[n++] = (struct change){*w, "all of this"};
    return n;
}

static int step_ns(const struct modelled *m, struct clock_config clock, struct what_if what_if,
                   double *ns) {
    struct clock_result result;
    clock.what_if = what_if;
    CHECK(modelled_time(m, &clock, &result, NULL));
    *ns = (double)result.step_ns;
    return OK;
}

/* How many percent more samples per second each change gives. */
static int gains_of(const struct run_config *config, const struct clock_config *clock,
                    const struct change *list, int count, double gain[MOST_CHANGES]) {
    struct modelled m;
    double now = 1, then = 1;
    int code = modelled_open(&m, config);
    if (!code) code = step_ns(&m, *clock, what_if_none(), &now);
    for (int i = 0; i < count && !code; i++) {
        code = step_ns(&m, *clock, list[i].what_if, &then);
        if (!code) gain[i] = 100 * (now / then - 1);
    }
    modelled_close(&m);
    return code;
}

/* The ways that are reported; FSDP if --modes names it. */
enum { SAID = 3 };

/* "DP gains 31 %, DDP 2 %" */
static void add_gains(struct text *text, const int *ways, const int *said,
                      double gain[SAID][MOST_CHANGES], int i) {
    const char *before = "";
    for (int k = 0; k < SAID; k++) {
        if (!said[k]) continue;
        double g = round(gain[k][i]);
        const char *verb = g < 0 ? " loses" : " gains";
        text_add(text, "%s %s%s %.0f %%", *before ? "," : "", way_name(ways[k]),
                 strcmp(verb, before) ? verb : "", fabs(g));
        before = verb;
    }
}

int what_if_show(const struct run_config *config, const struct clock_config *hardware, int width) {
    static const int of_several[SAID] = {WAY_DP, WAY_DDP, WAY_FSDP}, of_one[] = {WAY_SINGLE};
    struct change list[MOST_CHANGES];
    double gain[SAID][MOST_CHANGES];
    int alone = config->devices < 2, said[SAID] = {0}, count = changes_of(&hardware->what_if, list);
    const int *ways = alone ? of_one : of_several;
    struct text text = {.used = 0};
    if (!count) return OK;
    for (int k = 0; k < (alone ? 1 : SAID); k++) {
        struct run_config c = *config;
        way_apply(ways[k], &c);
        if (compare_leaves_out(&c, c.mode)) continue;
        struct clock_config clock = *hardware;
        retime_one_node(&c, &clock);
        CHECK(gains_of(&c, &clock, list, count, gain[k]));
        said[k] = 1;
    }
    text_add(&text, "what if, modelled, on %d x %s, %s:", config->devices, hardware->gpu->name,
             hardware->machine->name);
    for (int i = 0; i < count; i++) {
        text_add(&text, "%s with %s", i ? ";" : "", list[i].words);
        add_gains(&text, ways, said, gain, i);
    }
    text_wrap(stdout, width, 0, 2, text.words);
    fflush(stdout);
    return OK;
}
