/* The calls of a group, with their times: see call_trace.h. */
#include "group/call_trace.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "group/state.h"
#include "group/trace_file.h"

struct noted_call {
    uint64_t number, bytes;
    int64_t start_ns, end_ns;
    uint8_t what, receive;
};

struct call_trace {
    pthread_mutex_t lock; /* collectives and messages have threads of their own */
    struct noted_call *calls;
    size_t count, room, lost;
    char *path, group[64];
    int rank, n, ddps;
};

/* Letters that a file name may have on every system. The name may be drawn at random, 32 digits of
 * a UUID, of which the first eight tell groups apart. */
static void name_group(struct call_trace *t, const char *name, int made) {
    int most = strlen(name) < 32 ? 32 : 8;
    char *p = t->group;
    snprintf(t->group, sizeof t->group, made ? "%.*s-%d" : "%.*s", most, name, made);
    for (; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-') *p = '_';
}

static struct call_trace *new_trace(int rank, int n) {
    const char *file = getenv("DUET_TRACE");
    struct call_trace *t = file && *file ? calloc(1, sizeof *t) : NULL;
    if (!t) return NULL;
    t->rank = rank;
    t->n = n;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

struct call_trace *call_trace_open(const char *name, int made, int rank, int n) {
    struct call_trace *t = new_trace(rank, n);
    if (!t) return NULL;
    name_group(t, name, made);
    t->path = trace_file_path(t->group, rank);
    return t;
}

struct call_trace *call_trace_open_ddp(struct group *group) {
    struct call_trace *of = group ? group->trace : NULL,
                      *t = of ? new_trace(of->rank, of->n) : NULL;
    if (!t) return NULL;
    snprintf(t->group, sizeof t->group, "%.40s-ddp%d", of->group, of->ddps++);
    t->path = trace_file_path(t->group, t->rank);
    return t;
}

/* number 0: the next one. */
static void add(struct call_trace *t, struct noted_call noted) {
    noted.end_ns = now_ns();
    pthread_mutex_lock(&t->lock);
    if (!noted.number) noted.number = t->count + t->lost + 1;
    struct noted_call *calls = trace_file_room(t->calls, &t->room, t->count, sizeof noted);
    if (calls)
        (t->calls = calls)[t->count++] = noted;
    else
        t->lost++;
    pthread_mutex_unlock(&t->lock);
}

void call_trace_add(struct call_trace *t, const struct work *work, int64_t start_ns) {
    const struct group_call *c = &work->call;
    if (!t) return;
    add(t, (struct noted_call){.number = work->number,
                               .bytes = c->count * element_bytes(c->how.type),
                               .start_ns = start_ns,
                               .what = (uint8_t)c->what,
                               .receive = (uint8_t)c->receive});
}

void call_trace_add_bucket(struct call_trace *t, uint64_t bytes, int64_t start_ns) {
    add(t,
        (struct noted_call){.bytes = bytes, .start_ns = start_ns, .what = COLLECTIVE_ALL_REDUCE});
}

static void write_calls(struct json_writer *w, void *of) {
    const struct call_trace *t = of;
    json_integer(w, "duet_calls", 1);
    json_string(w, "group", t->group);
    json_integer(w, "rank", t->rank);
    json_integer(w, "ranks", t->n);
    json_natural(w, "lost", t->lost);
    json_array(w, "calls");
    for (size_t i = 0; i < t->count; i++) {
        const struct noted_call *c = &t->calls[i];
        fputc('\n', w->file);
        json_array(w, NULL);
        json_natural(w, NULL, c->number);
        json_string(w, NULL, c->receive ? "recv" : call_name(c->what));
        json_natural(w, NULL, c->bytes);
        json_integer(w, NULL, c->start_ns);
        json_integer(w, NULL, c->end_ns);
        json_close(w);
    }
    json_close(w);
}

void call_trace_close(struct call_trace *t) {
    if (!t) return;
    if (t->path) trace_file_write(t->path, t->rank, write_calls, t);
    pthread_mutex_destroy(&t->lock);
    free(t->path);
    free(t->calls);
    free(t);
}
