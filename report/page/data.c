/* The page's data for JavaScript: see data.h. */
#include "report/page/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "report/pictures/window.h"

/* ---- the timeline ---- */

/* What spans have in common, each once. */
struct kinds {
    struct kind {
        enum phase phase;
        int waiting;
        char name[sizeof((struct span *)0)->name];
    } * kind;
    int count, capacity;
};

/* The number of the kind; -1: no host memory. */
static int number_of(struct kinds *kinds, const struct span *s, const char *name) {
    for (int i = kinds->count - 1; i >= 0; i--) {
        const struct kind *k = &kinds->kind[i];
        if (k->phase == s->phase && k->waiting == s->waiting && !strcmp(k->name, name)) return i;
    }
    if (kinds->count == kinds->capacity) {
        int capacity = kinds->capacity ? 2 * kinds->capacity : 64;
        void *grown = realloc(kinds->kind, (size_t)capacity * sizeof *kinds->kind);
        if (!grown) return -1;
        kinds->kind = grown, kinds->capacity = capacity;
    }
    struct kind *k = &kinds->kind[kinds->count];
    k->phase = s->phase, k->waiting = s->waiting;
    snprintf(k->name, sizeof k->name, "%s", name);
    return kinds->count++;
}

static void put_whole(FILE *file, int64_t value) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t left = value < 0 ? (uint64_t)-value << 1 | 1 : (uint64_t)value << 1;
    do {
        fputc(digits[(left & 31) | (left > 31 ? 32 : 0)], file);
        left >>= 5;
    } while (left);
}

/* spans[0 .. n) as one; *end_ns: the end of the one before it on its lane, and then its own. */
static int write_span(FILE *file, const struct span *const *spans, size_t n, int64_t *end_ns,
                      struct kinds *kinds) {
    const struct span *s = spans[0];
    int64_t end = s->end_ns, cpu_ns = 0;
    uint64_t bytes = 0;
    char several[24];
    snprintf(several, sizeof several, "%d spans", (int)n);
    for (size_t i = 0; i < n; i++) {
        if (spans[i]->end_ns > end) end = spans[i]->end_ns;
        cpu_ns += spans[i]->cpu_ns;
        bytes += spans[i]->bytes;
    }
    int kind = number_of(kinds, s, n > 1 ? several : s->name);
    if (kind < 0) return fail(ERR_MEMORY, "report: no host memory");
    put_whole(file, s->start_ns - *end_ns);
    put_whole(file, end - s->start_ns);
    put_whole(file, kind);
    put_whole(file, end - s->start_ns - cpu_ns);
    put_whole(file, (int64_t)bytes);
    *end_ns = end;
    return OK;
}

/* What devices without detail have between joined spans, as a part of the window. */
static const double JOINED_GAP = 0.002;

/* The spans of one lane, which begins at spans[0]; *used: how many they are. */
static int write_lane(struct json_writer *w, const struct window *window, size_t first,
                      int detailed, struct kinds *kinds, size_t *used) {
    const struct span *const *spans = window->spans + first, *s = *spans;
    double gap = JOINED_GAP * (double)(window->end_ns - window->start_ns);
    size_t left = window->count - first, bytes = 0, i = 0;
    int64_t end_ns = window->start_ns;
    char *text = NULL;
    FILE *file = open_memstream(&text, &bytes);
    if (!file) return fail(ERR_MEMORY, "report: no host memory");
    int code = OK;
    for (size_t n; !code && i < left && spans[i]->device == s->device &&
                   window_row_of(spans[i]) == window_row_of(s);
         i += n) {
        n = s->device < detailed ? 1 : window_joined(spans + i, left - i, gap);
        code = write_span(file, spans + i, n, &end_ns, kinds);
    }
    if (fclose(file) && !code) code = fail(ERR_MEMORY, "report: no host memory");
    json_object(w, NULL);
    json_integer(w, "device", s->device);
    json_integer(w, "row", window_row_of(s));
    json_string(w, "spans", code ? "" : text);
    json_close(w);
    free(text);
    *used = i;
    return code;
}

static int write_lanes(struct json_writer *w, const struct window *window, int detailed,
                       struct kinds *kinds) {
    int code = OK;
    json_array(w, "lanes");
    for (size_t i = 0, n = 0; !code && i < window->count; i += n)
        code = write_lane(w, window, i, detailed, kinds, &n);
    json_close(w);
    return code;
}

static int write_timeline(struct json_writer *w, const struct page *page, struct kinds *kinds) {
    int64_t axis_ns = 0;
    json_array(w, "runs");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        struct window window;
        if (!r) continue;
        CHECK(window_open(&window, r, steps_to_show(page)));
        if (window.steps) {
            if (axis_ns < window.end_ns - window.start_ns)
                axis_ns = window.end_ns - window.start_ns;
            json_object(w, NULL);
            json_string(w, "title", page->run[i].title);
            int code = write_lanes(w, &window, devices_in_detail(page), kinds);
            json_close(w);
            if (code) return window_free(&window), code;
        }
        window_free(&window);
    }
    json_close(w);
    json_integer(w, "axis_ns", axis_ns);
    json_array(w, "kinds");
    for (int i = 0; i < kinds->count; i++) {
        json_array(w, NULL);
        json_integer(w, NULL, kinds->kind[i].phase);
        json_integer(w, NULL, kinds->kind[i].waiting);
        json_string(w, NULL, kinds->kind[i].name);
        json_close(w);
    }
    json_close(w);
    json_array(w, "phases");
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        json_string(w, NULL, phase_name((enum phase)phase));
    json_close(w);
    return OK;
}

/* ---- the whole ---- */

static int write_all(FILE *file, const struct page *page) {
    struct json_writer w;
    struct kinds kinds = {NULL, 0, 0};
    json_start(&w, file);
    json_object(&w, NULL);
    int code = write_timeline(&w, page, &kinds);
    free(kinds.kind);
    CHECK(code);
    json_close(&w);
    return json_finish(&w, "report");
}

/* "</script" inside a string would end the element, so every < is escaped. Spaces go: nobody reads
 * this by eye. */
int page_data(FILE *file, const struct page *page) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) return fail(ERR_MEMORY, "report: no host memory");
    int code = write_all(memory, page), quoted = 0;
    if (fclose(memory) && !code) code = fail(ERR_MEMORY, "report: no host memory");
    for (size_t i = 0; !code && i < bytes; i++) {
        if (text[i] == '"' && (!i || text[i - 1] != '\\')) quoted = !quoted;
        if (text[i] == '<')
            fputs("\\u003c", file);
        else if (quoted || (text[i] != ' ' && text[i] != '\n'))
            fputc(text[i], file);
    }
    free(text);
    return code;
}
