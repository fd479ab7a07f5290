/* The largest batch of each way: see max_batch.h. */
#include "cli/estimate/max_batch.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/estimate/ways.h"
#include "cli/results/results.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/estimate/estimate.h"
#include "train/estimate/max_batch.h"
#include "train/estimate/need.h"

/* ---- runs ---- */

static int by_estimate(void *context, const struct run_config *config, struct run_record *record) {
    (void)context;
    return estimate_run(config, record);
}

static int by_job(void *context, const struct run_config *config, struct run_record *record) {
    struct job_result *result = context;
    int code = job_run(config, record, result);
    return result->signal ? fail(ERR_FAILED, "%s", error_message()) : code; /* no further run */
}

/* What the estimate says; 0 where it can say nothing. */
static int guess(const struct run_config *config, int *batch) {
    struct run_config c;
    struct max_batch found;
    int can;
    *batch = 0;
    CHECK(need_outline(config, &c, &can));
    if (!can) return OK;
    CHECK(max_batch_find(&c, 0, by_estimate, NULL, &found));
    *batch = found.batch;
    return OK;
}

static int find(const struct run_config *config, int measure, struct max_batch *found,
                struct job_result *result) {
    int first = 0;
    if (!measure) return max_batch_find(config, 0, by_estimate, NULL, found);
    CHECK(guess(config, &first));
    return max_batch_find(config, first, by_job, result, found);
}

/* ---- words ---- */

static void print_head(const struct run_config *config, int measure, int width) {
    struct text text = {.used = 0};
    char size[32];
    text_add(&text, "%s on %s: the largest global batch that fits", config->model.name,
             config->data.name);
    for (int i = 0; i < config->device_memory_count; i++)
        text_add(&text, "%s %s", i ? "," : "",
                 format_bytes(config->device_memory[i], size, sizeof size));
    text_add(&text, config->device_memory_count > 1 ? " of devices 0, 1, ..." : " of each device");
    text_add(&text, measure ? ", confirmed by runs of it and of the next larger one"
                            : ", computed, not measured");
    text_wrap(stdout, width, 0, 2, text.words);
    printf("\n%-22s %10s %10s %12s %14s\n", "", "batch", "a device", "next larger", "held at most");
}

static void print_row(int way, const struct max_batch *m, int devices) {
    char peak[32] = "-", next[16] = "-", each[16];
    if (m->batch) format_bytes(m->peak, peak, sizeof peak);
    if (m->next) snprintf(next, sizeof next, "%d", m->next);
    snprintf(each, sizeof each, "%.4g", (double)m->batch / devices);
    printf("%-22s %10d %10s %12s %14s\n", way_name(way), m->batch, each, next, peak);
    fflush(stdout);
}

/* Why there is no larger one. */
static void print_why(int way, const struct max_batch *m, int width) {
    struct text text = {.used = 0};
    if (m->next)
        text_add(&text, "%s with %d: %s", way_name(way), m->next, m->why);
    else
        text_add(&text, "%s: the data set has no more than %d samples, so memory is no limit",
                 way_name(way), m->samples);
    text_wrap(stdout, width, 0, 2, text.words);
}

static void write_row(struct json_writer *w, int way, const struct max_batch *m, int devices,
                      int measure) {
    json_object(w, NULL);
    json_string(w, "name", way_key(way));
    json_string(w, "title", way_name(way));
    json_boolean(w, "measured", measure);
    json_integer(w, "batch_size", m->batch);
    json_number(w, "batch_per_device", (double)m->batch / devices);
    json_integer(w, "multiple_of", m->unit);
    if (m->next) {
        json_integer(w, "does_not_fit", m->next);
        json_string(w, "because", m->why);
    } else {
        json_null(w, "does_not_fit");
        json_null(w, "because");
    }
    json_integer(w, "memory_peak", (int64_t)m->peak);
    json_integer(w, "memory_peak_device", m->device);
    json_integer(w, "tries", m->tries);
    json_close(w);
}

/* ---- the command ---- */

struct row {
    int there, devices;
    struct max_batch found;
};

static int find_all(const struct run_config *config, int measure, struct row rows[WAYS],
                    struct job_result *result) {
    struct run_config c = *config;
    for (int i = measure ? WAY_DP : WAY_SINGLE; i < WAYS; i++) {
        way_apply(i, &c);
        if (compare_leaves_out(config, c.mode)) continue;
        CHECK(find(&c, measure, &rows[i].found, result));
        rows[i].there = 1;
        rows[i].devices = run_devices(&c);
        print_row(i, &rows[i].found, rows[i].devices);
        c.warned = 1;
    }
    return OK;
}

static int write_json(struct atomic_file *json, const char *command, const struct row rows[WAYS],
                      int measure) {
    struct json_writer w;
    if (!json->file) return OK;
    CHECK(results_start(&w, json->file, command));
    json_array(&w, "max_batch");
    for (int i = 0; i < WAYS; i++)
        if (rows[i].there) write_row(&w, i, &rows[i].found, rows[i].devices, measure);
    json_close(&w);
    return results_end(&w, json);
}

int max_batch_command(const char *command, const struct run_config *config, int measure,
                      struct atomic_file *json, struct job_result *result) {
    struct row rows[WAYS] = {{0}};
    int width = text_width(stdout), full = -1;
    if (!config->device_memory_count)
        return fail(ERR_USAGE, "--find-max-batch: the memory that it has to fit is missing: give "
                               "--device-memory");
    const char *shows = *config->files.trace      ? "--trace"
                        : *config->files.report   ? "--report"
                        : *config->files.pictures ? "--pictures"
                                                  : NULL;
    if (shows)
        return fail(ERR_USAGE,
                    "%s: no effect beside --find-max-batch: its runs are not timed: leave one out",
                    shows);
    print_head(config, measure, width);
    CHECK(find_all(config, measure, rows, result));
    printf("\n");
    for (int i = 0; i < WAYS; i++) {
        if (rows[i].there) print_why(i, &rows[i].found, width);
        if (rows[i].there && !rows[i].found.batch && full < 0) full = i;
    }
    CHECK(write_json(json, command, rows, measure));
    if (full < 0) return OK;
    result->exit_status = 0; /* the error below decides */
    return fail(ERR_MEMORY, "%s: not even a batch of %d fits: give a larger --device-memory",
                way_name(full), rows[full].found.unit);
}
