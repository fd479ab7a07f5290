/* The page's data for JavaScript: see data.h. */
#include "report/page/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "report/page/collective.h"
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

/* before_ns: the start of the span before it on its lane. */
static int write_span(struct json_writer *w, const struct span *s, int64_t before_ns,
                      struct names *names) {
    int name = number_of(names, s->name);
    if (name < 0) return fail(ERR_MEMORY, "report: no host memory");
    json_integer(w, NULL, s->start_ns - before_ns);
    json_integer(w, NULL, s->end_ns - s->start_ns);
    json_integer(w, NULL, s->phase);
    json_integer(w, NULL, name);
    json_integer(w, NULL, s->waiting);
    json_integer(w, NULL, s->cpu_ns);
    json_natural(w, NULL, s->bytes);
    return OK;
}

static int write_lanes(struct json_writer *w, const struct window *window, struct names *names) {
    const struct span *last = NULL;
    int64_t before_ns = 0;
    json_array(w, "lanes");
    for (size_t i = 0; i < window->count; i++) {
        const struct span *s = window->spans[i];
        if (!last || last->device != s->device || window_row_of(last) != window_row_of(s)) {
            if (last) json_close(w), json_close(w);
            json_object(w, NULL);
            json_integer(w, "device", s->device);
            json_integer(w, "row", window_row_of(s));
            json_array(w, "spans");
            before_ns = window->start_ns;
        }
        CHECK(write_span(w, s, before_ns, names));
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
            int code = write_lanes(w, &window, names);
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

/* ---- the collective ---- */

/* The chunks first .. first + count - 1 that a range of DATA covers. */
static int chunks_of(const struct hops *h, uint64_t offset, uint64_t count, int *first) {
    int n = 0;
    *first = 0;
    for (int c = 0; c < h->chunk_count; c++) {
        if (h->chunks[c].offset < offset || h->chunks[c].offset >= offset + count) continue;
        if (!n++) *first = c;
    }
    return n;
}

/* Between ranks alone. What goes to or comes from SCRATCH or a sum in registers is shown at the
 * place in DATA that the range belongs to where it has one, and else without a place. */
static void write_moves(struct json_writer *w, const struct hops *h, int hop) {
    json_array(w, "moves");
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        int first = 0, n = 0;
        if (m->hop != hop || m->from == m->to) continue;
        if (m->to_buffer != HOP_SCRATCH)
            n = chunks_of(h, m->to_offset, m->count, &first);
        else if (m->from_buffer != HOP_SCRATCH)
            n = chunks_of(h, m->from_offset, m->count, &first);
        json_integer(w, NULL, m->from);
        json_integer(w, NULL, m->to);
        json_integer(w, NULL, m->action == HOP_REDUCE);
        json_integer(w, NULL, first);
        json_integer(w, NULL, n);
    }
    json_close(w);
}

static int write_hops(struct json_writer *w, const struct hops *h, struct hops_state *state) {
    size_t cells = (size_t)h->n * (size_t)h->chunk_count;
    uint64_t *before = calloc(cells + 1, sizeof *before);
    if (!before) return fail(ERR_MEMORY, "report: no host memory");
    int code = OK;
    json_array(w, "hops");
    for (int hop = 0; !code && hop <= h->hops; hop++) {
        code = hops_state_run(state, hop);
        json_object(w, NULL);
        write_moves(w, h, hop);
        json_array(w, "cells");
        for (int r = 0; !code && r < h->n; r++)
            for (int c = 0; c < h->chunk_count; c++) {
                uint64_t *was = &before[r * h->chunk_count + c], is = hops_state_terms(state, r, c);
                char hex[24];
                if (*was == is) continue;
                snprintf(hex, sizeof hex, "%" PRIx64, *was = is);
                json_integer(w, NULL, r);
                json_integer(w, NULL, c);
                json_string(w, NULL, hex);
            }
        json_close(w);
        json_close(w);
    }
    json_close(w);
    free(before);
    return code;
}

static int write_collective(struct json_writer *w, const struct run_record *r, int bucket) {
    struct hops hops;
    struct hops_state *state = NULL;
    CHECK(hops_of_bucket(r, bucket, &hops, NULL));
    int code = hops_state_init(&state, &hops);
    if (!code) {
        json_object(w, NULL);
        json_integer(w, "bucket", bucket);
        json_integer(w, "bytes", r->bucket_bytes[bucket]);
        json_string(w, "algorithm", allreduce_algorithm_name(hops.algorithm));
        json_integer(w, "ranks", hops.n);
        json_integer(w, "chunks", hops.chunk_count);
        code = write_hops(w, &hops, state);
        json_close(w);
    }
    hops_state_free(state);
    hops_free(&hops);
    return code;
}

/* With more ranks or buckets the largest bucket stands for all. */
enum { ALL_BUCKETS = 12, ALL_RANKS = 8 };

static int write_collectives(struct json_writer *w, const struct run_record *r) {
    int all = r->devices <= ALL_RANKS && r->bucket_count <= ALL_BUCKETS, code = OK;
    json_array(w, "collectives");
    for (int b = 0; !code && b < r->bucket_count; b++)
        if (all || b == largest_bucket_of(r)) code = write_collective(w, r, b);
    json_close(w);
    return code;
}

/* ---- the whole ---- */

static int write_all(FILE *file, const struct page *page) {
    struct json_writer w;
    struct names names = {NULL, 0, 0};
    json_start(&w, file);
    json_object(&w, NULL);
    int code = write_timeline(&w, page, &names);
    free(names.text);
    if (!code && has_collective(page))
        code = write_collectives(&w, page->run[index_of_ddp(page)].run);
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
