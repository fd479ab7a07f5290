/* The ways to train, side by side: see ways.h. */
#include "cli/ways.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/results.h"
#include "report/excess.h"
#include "report/text.h"

static const struct {
    const char *name, *key;
    enum run_mode mode;
    int loss_in_forward;
} ways[WAYS] = {{"single", "single", MODE_SINGLE, 0},
                {"DP", "dp", MODE_DP, 0},
                {"DP, loss in forward", "dp_loss_in_forward", MODE_DP, 1},
                {"DDP", "ddp", MODE_DDP, 0}};

const char *way_name(int way) {
    return ways[way].name;
}

const char *way_key(int way) {
    return ways[way].key;
}

enum run_mode way_mode(int way) {
    return ways[way].mode;
}

const char *way_title(int way, const struct run_config *config, char text[WAY_TITLE]) {
    int dp = ways[way].mode == MODE_DP, n = snprintf(text, WAY_TITLE, "%s", ways[way].name);
    if (dp && config->output_device)
        n += snprintf(text + n, WAY_TITLE - (size_t)n, ", output device %d", config->output_device);
    if (dp && config->sharded_reduce)
        n += snprintf(text + n, WAY_TITLE - (size_t)n, ", sharded reduce");
    if (dp && config->host_serial_us > 0)
        snprintf(text + n, WAY_TITLE - (size_t)n, ", host serial %g us", config->host_serial_us);
    return text;
}

void way_apply(int way, struct run_config *config) {
    config->mode = ways[way].mode;
    config->loss_in_forward = ways[way].loss_in_forward;
}

struct ways *ways_new(void) {
    struct ways *all = calloc(1, sizeof *all);
    if (!all) fail(ERR_MEMORY, "the records of the runs: no host memory");
    return all;
}

void ways_free(struct ways *all) {
    for (int i = 0; all && i < WAYS; i++)
        record_free(&all->run[i]);
    free(all);
}

const struct run_record *way_run(const struct ways *all, int way) {
    return all->run[way].devices ? &all->run[way] : NULL;
}

/* ---- what fits ---- */

void way_note_full(struct ways *all, int way, const struct run_config *config, int width) {
    struct text text = {.used = 0};
    snprintf(all->full[way], sizeof all->full[way], "%s", error_message());
    record_free(&all->run[way]);
    all->need[way] = need_of(config);
    text_add(&text, "%s", all->full[way]);
    printf("\n%s does not fit:\n", ways[way].name);
    text_wrap(stdout, width, 2, 2, text.words);
    fflush(stdout);
}

static void fits(struct text *text, int way, const struct run_record *r) {
    char most[32], all[32];
    uint64_t peak = 0, capacity = 0;
    for (int d = 0; d < r->devices; d++)
        if (r->device[d].memory.total_peak > peak) {
            peak = r->device[d].memory.total_peak;
            capacity = r->device[d].memory.capacity;
        }
    text_add(text, "%s: fits, with at most %s of %s on a device", ways[way].name,
             format_bytes(peak, most, sizeof most), format_bytes(capacity, all, sizeof all));
}

void ways_show_what_fits(const struct ways *all, int width) {
    text_wrap(stdout, width, 0, 2, "what fits where");
    for (int i = 0; i < WAYS; i++) {
        struct text text = {.used = 0};
        char needs[NEED_WORDS];
        if (*all->full[i])
            text_add(&text, "%s: does not fit%s", ways[i].name, need_words(&all->need[i], needs));
        else if (way_run(all, i))
            fits(&text, i, way_run(all, i));
        if (text.used) text_wrap(stdout, width, 2, 4, text.words);
    }
}

/* ---- JSON ---- */

/* Kind by kind, in each first what is beyond the spread of the steps, the largest first. */
static void write_excess(struct json_writer *w, const struct run_record *run) {
    static const char *const kind_names[] = {"memory_bytes", "link_bytes_a_step", "ns_a_step"};
    struct excess list[EXCESS_MAX];
    json_array(w, "device_0_excess");
    for (int kind = EXCESS_MEMORY; kind <= (run->computed ? EXCESS_TRAFFIC : EXCESS_TIME); kind++) {
        int n = profile_excess(run, kind, list);
        for (int i = 0; i < n; i++) {
            json_object(w, NULL);
            json_string(w, "kind", kind_names[kind]);
            json_string(w, "name", list[i].name);
            json_number(w, "amount", list[i].amount);
            json_number(w, "spread", kind == EXCESS_TIME ? list[i].spread : NAN);
            json_boolean(w, "within_spread", list[i].within_spread);
            json_close(w);
        }
    }
    json_close(w);
}

void ways_write(const struct ways *all, struct json_writer *w) {
    json_array(w, "runs");
    for (int i = 0; i < WAYS; i++) {
        if (!way_run(all, i) && !*all->full[i]) continue; /* left out */
        results_run(w, ways[i].key, ways[i].name, all->full[i], &all->run[i]);
        if (!*all->full[i]) write_excess(w, &all->run[i]);
        json_close(w);
    }
    json_close(w);
}
