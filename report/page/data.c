/* The page's data for JavaScript: see data.h. */
#include "report/page/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "report/page/window.h"

/* ---- the timeline ---- */

/* Names of spans, each once. */
struct names {
    char (*text)[sizeof((struct span *)0)->name];
    int count, capacity;
};

/* The number of the name; -1: no host memory. */
static int number_of(struct names *names, const char *text) {
    for (int i = names->count - 1; i >= 0; i--)
        if (!strcmp(names->text[i], text)) return i;
    if (names->count == names->capacity) {
        int capacity = names->capacity ? 2 * names->capacity : 64;
        void *grown = realloc(names->text, (size_t)capacity * sizeof *names->text);
        if (!grown) return -1;
        names->text = grown, names->capacity = capacity;
    }
    snprintf(names->text[names->count], sizeof *names->text, "%s", text);
    return names->count++;
}

/* spans[0 .. n) as one; before_ns: the start of the one before it on its lane. */
static int write_span(struct json_writer *w, const struct span *const *spans, size_t n,
                      int64_t before_ns, struct names *names) {
    const struct span *s = spans[0];
    int64_t end_ns = s->end_ns, cpu_ns = 0;
    uint64_t bytes = 0;
    char several[24];
    snprintf(several, sizeof several, "%d spans", (int)n);
    for (size_t i = 0; i < n; i++) {
        if (spans[i]->end_ns > end_ns) end_ns = spans[i]->end_ns;
        cpu_ns += spans[i]->cpu_ns;
        bytes += spans[i]->bytes;
    }
    int name = number_of(names, n > 1 ? several : s->name);
    if (name < 0) return fail(ERR_MEMORY, "report: no host memory");
    json_integer(w, NULL, s->start_ns - before_ns);
    json_integer(w, NULL, end_ns - s->start_ns);
    json_integer(w, NULL, s->phase);
    json_integer(w, NULL, name);
    json_integer(w, NULL, s->waiting);
    json_integer(w, NULL, cpu_ns);
    json_natural(w, NULL, bytes);
    return OK;
}

/* What devices without detail have between joined spans, as a part of the window. */
static const double JOINED_GAP = 0.002;

static int write_lanes(struct json_writer *w, const struct window *window, int detailed,
                       struct names *names) {
    const struct span *last = NULL;
    int64_t before_ns = 0;
    double gap = JOINED_GAP * (double)(window->end_ns - window->start_ns);
    json_array(w, "lanes");
    for (size_t i = 0, n; i < window->count; i += n) {
        const struct span *const *spans = window->spans + i, *s = *spans;
        if (!last || last->device != s->device || window_row_of(last) != window_row_of(s)) {
            if (last) json_close(w), json_close(w);
            json_object(w, NULL);
            json_integer(w, "device", s->device);
            json_integer(w, "row", window_row_of(s));
            json_array(w, "spans");
            before_ns = window->start_ns;
        }
        n = s->device < detailed ? 1 : window_joined(spans, window->count - i, gap);
        CHECK(write_span(w, spans, n, before_ns, names));
        before_ns = s->start_ns;
        last = s;
    }
    if (last) json_close(w), json_close(w);
    json_close(w);
    return OK;
}

static int write_timeline(struct json_writer *w, const struct page *page, struct names *names) {
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
            json_integer(w, "devices", r->devices);
            json_integer(w, "comm", window_has_row(&window, ROW_COMM));
            json_integer(w, "copy", window_has_row(&window, ROW_COPY));
            json_integer(w, "first_step", window.first_step);
            json_integer(w, "steps", window.steps);
            json_integer(w, "length", window.end_ns - window.start_ns);
            int code = write_lanes(w, &window, devices_in_detail(page), names);
            json_close(w);
            if (code) return window_free(&window), code;
        }
        window_free(&window);
    }
    json_close(w);
    json_integer(w, "axis_ns", axis_ns);
    json_array(w, "names");
    for (int i = 0; i < names->count; i++)
        json_string(w, NULL, names->text[i]);
    json_close(w);
    json_array(w, "phases");
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        json_object(w, NULL);
        json_string(w, "name", phase_name((enum phase)phase));
        json_string(w, "css", shade_class(shade_of_phase(phase)));
        json_string(w, "text", shade_class(shade_of_text_on(shade_of_phase(phase))));
        json_close(w);
    }
    json_close(w);
    return OK;
}

/* ---- traffic ---- */

/* An end of a link: a device, or the host behind all of them. */
static uint64_t link_bytes(const struct run_record *r, int from, int to) {
    int a = from < r->devices ? from : LINK_HOST, b = to < r->devices ? to : LINK_HOST;
    return a == b ? 0 : r->traffic->bytes[a][b];
}

/* The bytes to each destination in all steps, neighbours that are equal as one pair. */
static void write_row(struct json_writer *w, const struct run_record *r, int from) {
    int ends = r->devices + 1, equal = 1;
    json_array(w, NULL);
    for (int to = 0; to < ends; to += equal) {
        uint64_t bytes = link_bytes(r, from, to);
        for (equal = 1; to + equal < ends && link_bytes(r, from, to + equal) == bytes;)
            equal++;
        json_integer(w, NULL, equal);
        json_natural(w, NULL, bytes);
    }
    json_close(w);
}

static void write_traffic(struct json_writer *w, const struct page *page) {
    json_object(w, "traffic");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        char figure[24];
        if (!r || r->devices < 2 || !has_traffic(page, i)) continue;
        snprintf(figure, sizeof figure, "traffic-%d", i);
        json_object(w, figure);
        json_integer(w, "steps", r->steps);
        json_array(w, "rows");
        for (int from = 0; from <= r->devices; from++)
            write_row(w, r, from);
        json_close(w);
        json_close(w);
    }
    json_close(w);
}

/* ---- the whole ---- */

static int write_all(FILE *file, const struct page *page) {
    struct json_writer w;
    struct names names = {NULL, 0, 0};
    json_start(&w, file);
    json_object(&w, NULL);
    int code = write_timeline(&w, page, &names);
    free(names.text);
    if (!code) write_traffic(&w, page);
    if (!code) code = playback_data(&w, page);
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
