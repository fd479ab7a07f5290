/* Shows when each device of a program computed, from a file of duet_devices_timeline. This is meant
 * for a model split over devices, which wait for each other. An event names its device and says
 * whether the device only waited. The bubble is the share of the devices' time, from the first
 * event to the last, in which they neither computed nor copied. */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "report/calls/calls.h"

enum { COLUMNS = 64 };

struct timeline {
    int devices;
    double start, end, busy[MAX_DEVICES];
    char lane[MAX_DEVICES][COLUMNS + 1];
};

int calls_refuse(const char *path, const char *what) {
    return fail(ERR_FAILED,
                "%s: %s: give files of DUET_TRACE, or one file of duet_devices_timeline", path,
                what);
}

int event_times(const struct json *event, double *start, double *end) {
    double took = json_value(event, "dur") * 1e3;
    *start = json_value(event, "ts") * 1e3;
    *end = *start + took;
    return *start >= 0 && took >= 0 && *end < 1e18;
}

/* The name of an op tells its phase; the rest are copies and sums. */
static char letter_of(const char *name) {
    static const struct {
        const char *word;
        char letter;
    } words[] = {{"cross entropy", 'F'}, {"loss", 'F'}, {"backward", 'B'}, {"forward", 'F'},
                 {"sgd", 'S'},           {"adam", 'S'}, {"adadelta", 'S'}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i].word)) return words[i].letter;
    return ':';
}

static int check_event(struct timeline *t, const char *path, const struct json *event) {
    double device = json_value(event, "pid"), start, end;
    if (!(device >= 0 && device < t->devices)) return calls_refuse(path, "a span without a device");
    if (!*json_word(event, "name") || !json_find(json_find(event, "args"), "waiting") ||
        !event_times(event, &start, &end))
        return calls_refuse(path, "a span without a name or times");
    if (start < t->start) t->start = start;
    if (end > t->end) t->end = end;
    return OK;
}

/* A column has the letter of the event at its middle. */
static void draw_event(struct timeline *t, const struct json *event) {
    double start, end, each = (t->end - t->start) / COLUMNS;
    int device = (int)json_value(event, "pid");
    if (json_find(json_find(event, "args"), "waiting")->integer) return;
    event_times(event, &start, &end);
    t->busy[device] += end - start;
    for (int c = 0; c < COLUMNS; c++) {
        double middle = t->start + (c + .5) * each;
        if (start <= middle && middle < end)
            t->lane[device][c] = letter_of(json_word(event, "name"));
    }
}

int timeline_print(FILE *out, const char *path, const struct json *root) {
    const struct json *events = json_find(root, "traceEvents");
    double devices = json_value(json_find(root, "otherData"), "devices"), busy = 0;
    if (!(devices >= 1 && devices <= MAX_DEVICES) || !events || events->kind != JSON_ARRAY ||
        !events->count)
        return calls_refuse(path, "it has no spans: was duet_device_profile on?");
    struct timeline t = {.devices = (int)devices, .start = 1e18};
    for (const struct json *event = events->child; event; event = event->next)
        CHECK(check_event(&t, path, event));
    double all = t.end - t.start;
    if (!(all > 0)) return calls_refuse(path, "its spans take no time");
    for (int d = 0; d < t.devices; d++)
        memset(t.lane[d], '.', COLUMNS);
    for (const struct json *event = events->child; event; event = event->next)
        draw_event(&t, event);
    fprintf(out, "%.2f ms: F forward, B backward, S optimizer, : copies and sums, . nothing\n",
            all * 1e-6);
    for (int d = 0; d < t.devices; d++) {
        fprintf(out, "device %-2d |%s| busy %2.0f %%\n", d, t.lane[d], 100 * t.busy[d] / all);
        busy += t.busy[d] / all;
    }
    fprintf(out, "the bubble: %.0f %% of the time of %d devices\n", 100 * (1 - busy / t.devices),
            t.devices);
    return OK;
}
