/* Events of a trace, one after another: see chrome_writer.h. */
#include "report/chrome/chrome_writer.h"

static void open_event(struct writer *w, const char *kind, int track, const char *name) {
    fputc('\n', w->json.file); /* one event per line, for people and for grep */
    json_object(&w->json, NULL);
    json_string(&w->json, "ph", kind);
    json_integer(&w->json, "pid", w->process);
    json_integer(&w->json, "tid", track);
    json_string(&w->json, "name", name);
}

static void write_time(struct writer *w, const char *key, int64_t ns) {
    json_thousandths(&w->json, key, ns);
}

void open_slice(struct writer *w, int track, const char *name, const char *category,
                int64_t start_ns, int64_t end_ns) {
    open_event(w, "X", track, name);
    json_string(&w->json, "cat", category);
    write_time(w, "ts", start_ns - w->zero_ns);
    write_time(w, "dur", end_ns - start_ns);
    json_object(&w->json, "args");
}

void close_event(struct writer *w) {
    json_close(&w->json);
    json_close(&w->json);
}

void write_name(struct writer *w, const char *what, int track, const char *name) {
    open_event(w, "M", track, what);
    json_object(&w->json, "args");
    json_string(&w->json, "name", name);
    close_event(w);
}

void write_place(struct writer *w, const char *what, int track, int place) {
    open_event(w, "M", track, what);
    json_object(&w->json, "args");
    json_integer(&w->json, "sort_index", place);
    close_event(w);
}
