/* The timeline of a program's devices: see timeline.h. */
#include "report/calls/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "report/calls/calls.h"

struct timed {
    int64_t start_ns, end_ns;
    int device, mark;
};

struct timeline {
    int devices;
    struct timed *part; /* [parts], owned: everything but waiting */
    size_t parts;
    int64_t start_ns, end_ns;
};

/* ---- reading ---- */

static int torn(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file of duet_devices_timeline", path, what);
}

enum { COLUMNS = 64, MARKS = 4 };
static const char marks[MARKS] = {'F', 'B', 'S', ':'};

/* The name of an op tells its phase; the rest are copies and sums. */
static int mark_of(const char *name) {
    static const struct {
        const char *word;
        int mark;
    } words[] = {{"backward", 1}, {"forward", 0}, {"sgd", 2}, {"adam", 2}, {"adadelta", 2}};
    if (strstr(name, "cross entropy") || strstr(name, "loss")) return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i].word)) return words[i].mark;
    return MARKS - 1;
}

static int read_part(struct timeline *t, const char *path, const struct json *event) {
    const struct json *waiting = json_find(json_find(event, "args"), "waiting");
    const char *name = json_word(event, "name");
    struct timed part = {.device = (int)json_whole(event, "pid", -1), .mark = mark_of(name)};
    if (part.device < 0 || part.device >= t->devices) return torn(path, "a span of no device");
    if (!*name || !waiting || event_times(event, &part.start_ns, &part.end_ns))
        return torn(path, "a span without a name or times");
    if (t->end_ns < part.end_ns) t->end_ns = part.end_ns;
    if (t->start_ns > part.start_ns) t->start_ns = part.start_ns;
    if (!waiting->integer) t->part[t->parts++] = part;
    return OK;
}

static int read_timeline(struct timeline *t, const char *path, const struct json *root) {
    const struct json *events = json_find(root, "traceEvents");
    int64_t devices = json_whole(json_find(root, "otherData"), "devices", 0);
    if (devices < 1 || devices > MAX_DEVICES || !events || events->kind != JSON_ARRAY ||
        !events->count)
        return torn(path, "it has no spans: was duet_device_profile on?");
    *t = (struct timeline){.devices = (int)devices, .start_ns = INT64_MAX};
    t->part = calloc((size_t)events->count, sizeof *t->part);
    if (!t->part) return fail(ERR_MEMORY, "%s: no host memory", path);
    for (const struct json *event = events->child; event; event = event->next)
        CHECK(read_part(t, path, event));
    return t->end_ns > t->start_ns ? OK : torn(path, "its spans take no time");
}

/* ---- letters ---- */

/* The letter of a column is that of its longest part; a dot if the device did nothing for most of
 * it. Returns how long it was busy. */
static double draw_lane(const struct timeline *t, int device, char line[COLUMNS + 1]) {
    double each = (double)(t->end_ns - t->start_ns) / COLUMNS, spent[COLUMNS][MARKS] = {{0}};
    double busy = 0;
    for (size_t i = 0; i < t->parts; i++) {
        const struct timed *s = &t->part[i];
        if (s->device != device) continue;
        busy += (double)(s->end_ns - s->start_ns);
        double from = (double)(s->start_ns - t->start_ns), to = (double)(s->end_ns - t->start_ns);
        for (int c = (int)(from / each); c < COLUMNS && c * each < to; c++) {
            double a = from > c * each ? from : c * each,
                   b = (c + 1) * each < to ? (c + 1) * each : to;
            spent[c][s->mark] += b > a ? b - a : 0;
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
    return busy;
}

static void print_lanes(FILE *file, const struct timeline *t) {
    char line[COLUMNS + 1];
    double all = (double)(t->end_ns - t->start_ns), busy = 0;
    fprintf(file, "%.2f ms: F forward, B backward, S optimizer, : copies and sums, . nothing\n",
            all * 1e-6);
    for (int d = 0; d < t->devices; d++) {
        double part = draw_lane(t, d, line) / all;
        fprintf(file, "device %-2d |%s| busy %2.0f %%\n", d, line, 100 * part);
        busy += part;
    }
    fprintf(file, "the bubble: %.0f %% of the time of %d devices\n", 100 * (1 - busy / t->devices),
            t->devices);
}

int timeline_print(FILE *out, const char *path, int *is_one) {
    struct timeline t = {.devices = 0};
    struct json *root = NULL;
    *is_one = 0;
    if (access(path, F_OK)) return OK; /* DUET_TRACE's files have longer names */
    int code = json_of_file(path, &root);
    *is_one = !code && json_find(json_find(root, "otherData"), "duet_timeline") != NULL;
    if (*is_one) code = read_timeline(&t, path, root);
    if (*is_one && !code) print_lanes(out, &t);
    free(t.part);
    json_free(root);
    return code;
}
