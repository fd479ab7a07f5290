/* The timeline of a program's devices: see timeline.h. */
#include "report/calls/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "report/chrome/chrome_trace.h"
#include "report/pictures/draw.h"
#include "report/results.h"

/* ---- reading ---- */

static int torn(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file of duet_devices_timeline", path, what);
}

/* A program's tape gives its spans no phases; the names of ops tell them. */
static enum phase phase_of(const char *name) {
    if (strstr(name, "cross entropy") || strstr(name, "loss")) return PHASE_LOSS;
    if (strstr(name, "backward")) return PHASE_BACKWARD;
    if (strstr(name, "forward")) return PHASE_FORWARD;
    static const char *const optimizers[] = {"sgd", "adam", "adadelta"};
    for (int i = 0; i < 3; i++)
        if (strstr(name, optimizers[i])) return PHASE_OPTIMIZER;
    return PHASE_INPUT; /* copies and sums */
}

static int read_span(struct run_record *run, const char *path, const struct json *item) {
    enum { PARTS = 5 };
    const struct json *part[PARTS], *p = item->child;
    if (item->kind != JSON_ARRAY || item->count != PARTS) return torn(path, "a span is torn");
    for (int i = 0; i < PARTS; i++, p = p->next)
        part[i] = p;
    int64_t device = part[0]->is_integer ? part[0]->integer : -1;
    if (device < 0 || device >= run->devices) return torn(path, "a span of no device");
    if (part[1]->kind != JSON_STRING || !part[2]->is_integer || !part[3]->is_integer ||
        part[2]->integer < 0 || part[3]->integer < part[2]->integer ||
        part[4]->kind != JSON_BOOLEAN)
        return torn(path, "a span without a name or times");
    struct span span = {.start_ns = part[2]->integer,
                        .end_ns = part[3]->integer,
                        .device = (int16_t)device,
                        .lane = LANE_COMPUTE,
                        .phase = (uint8_t)phase_of(part[1]->string),
                        .waiting = (uint8_t)part[4]->integer};
    snprintf(span.name, sizeof span.name, "%s", part[1]->string);
    span_add(&run->kept, &span);
    if (!span.waiting) run->device[device].busy_ns += span.end_ns - span.start_ns;
    return OK;
}

static int read_run(struct timeline *t, const char *path, const struct json *root) {
    const struct json *devices = json_find(root, "devices"), *spans = json_find(root, "spans");
    if (!devices || devices->kind != JSON_ARRAY || devices->count < 1 ||
        devices->count > MAX_DEVICES || !spans || spans->kind != JSON_ARRAY || !spans->count)
        return torn(path, "it has no spans: was duet_device_profile on?");
    CHECK(record_new(&t->run));
    t->run->devices = (int)devices->count;
    t->run->steps = 1;
    snprintf(t->run->kind, sizeof t->run->kind, "cpu");
    span_log_init(&t->run->kept, 1);
    for (const struct json *item = spans->child; item; item = item->next)
        CHECK(read_span(t->run, path, item));
    if (t->run->kept.dropped) return fail(ERR_MEMORY, "%s: no host memory", path);
    for (size_t i = 0; i < t->run->kept.count; i++) {
        const struct span *s = &t->run->kept.spans[i];
        if (!i || s->start_ns < t->start_ns) t->start_ns = s->start_ns;
        if (s->end_ns > t->end_ns) t->end_ns = s->end_ns;
    }
    return t->end_ns > t->start_ns ? OK : torn(path, "its spans take no time");
}

int timeline_read(struct timeline *t, const char *path, int *is_one) {
    char *text = NULL;
    size_t bytes = 0;
    struct json *root = NULL;
    *t = (struct timeline){.run = NULL};
    *is_one = 0;
    FILE *file = fopen(path, "r"); /* DUET_TRACE's files have longer names */
    if (!file) return OK;
    fclose(file);
    int code = read_whole_file(path, &text, &bytes);
    if (!code) code = json_parse(path, text, bytes, &root);
    *is_one = !code && json_find(root, "duet_timeline") != NULL;
    if (*is_one) code = read_run(t, path, root);
    json_free(root);
    free(text);
    return code;
}

void timeline_free(struct timeline *t) {
    record_delete(t->run);
    t->run = NULL;
}

/* ---- letters ---- */

enum { COLUMNS = 64, MARKS = 4 };
static const char marks[MARKS] = {'F', 'B', 'S', ':'};

static int mark_of(const struct span *s) {
    return s->phase == PHASE_FORWARD || s->phase == PHASE_LOSS ? 0
           : s->phase == PHASE_BACKWARD                        ? 1
           : s->phase == PHASE_OPTIMIZER                       ? 2
                                                               : 3;
}

/* The letter of a column is that of which it has most; a dot where the device did nothing for most
 * of it. */
static void draw_lane(const struct timeline *t, int device, char line[COLUMNS + 1]) {
    double each = (double)(t->end_ns - t->start_ns) / COLUMNS, spent[COLUMNS][MARKS] = {{0}};
    for (size_t i = 0; i < t->run->kept.count; i++) {
        const struct span *s = &t->run->kept.spans[i];
        if (s->waiting || s->device != device) continue;
        double from = (double)(s->start_ns - t->start_ns), to = (double)(s->end_ns - t->start_ns);
        for (int c = (int)(from / each); c < COLUMNS && c * each < to; c++) {
            double a = from > c * each ? from : c * each,
                   b = (c + 1) * each < to ? (c + 1) * each : to;
            spent[c][mark_of(s)] += b > a ? b - a : 0;
        }
    }
    for (int c = 0; c < COLUMNS; c++) {
        double all = 0;
        int most = 0;
        for (int m = 0; m < MARKS; m++) {
            all += spent[c][m];
            if (spent[c][m] > spent[c][most]) most = m;
        }
        line[c] = all > each / 2 ? marks[most] : '.';
    }
    line[COLUMNS] = 0;
}

void timeline_print(FILE *file, const struct timeline *t) {
    char line[COLUMNS + 1];
    double all = (double)(t->end_ns - t->start_ns), busy = 0;
    fprintf(file, "%.2f ms: F forward, B backward, S optimizer, : copies and sums, . nothing\n",
            all * 1e-6);
    for (int d = 0; d < t->run->devices; d++) {
        draw_lane(t, d, line);
        fprintf(file, "device %-2d |%s| busy %2.0f %%\n", d, line,
                100 * (double)t->run->device[d].busy_ns / all);
        busy += (double)t->run->device[d].busy_ns / all;
    }
    fprintf(file, "the bubble: %.0f %% of the time of %d devices\n",
            100 * (1 - busy / t->run->devices), t->run->devices);
}

/* ---- pictures ---- */

int timeline_picture(const struct timeline *t, struct atomic_file *file) {
    struct picture p = picture_of(file->file, PICTURE_SLIDE);
    struct page page = {.command = "report", .count = 1};
    page.run[0] = (struct page_run){.title = "A model in parts", .run = t->run};
    CHECK(draw_timeline(&p, &page, 0));
    return atomic_commit(file);
}

int timeline_trace(const struct timeline *t, struct atomic_file *file) {
    const struct trace_run run = {.title = "a model in parts", .run = t->run};
    return chrome_trace_write(file, file->name, &run, 1);
}
