/* Records the calls of a group and their times: see call_trace.h. */
#include "group/call_trace.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/program_name.h"
#include "base/text/json.h"
#include "group/state.h"
#include "trace/span.h"

enum { COLLECTIVES = 1, MESSAGES }; /* tracks of the trace */

struct call_trace {
    pthread_mutex_t lock; /* collectives and messages have their own threads */
    struct span_log log;
    char *path, group[64];
    int rank, ranks;
};

/* The group's name, in letters that every file system allows. A job's name may be drawn at random,
 * 32 digits of a UUID, of which the first eight tell groups apart. */
struct call_trace *call_trace_open(const char *name, int made, int rank, int n) {
    const char *file = getenv("DUET_TRACE");
    struct call_trace *t = file && *file ? calloc(1, sizeof *t) : NULL;
    if (!t) return NULL;
    t->rank = rank, t->ranks = n;
    snprintf(t->group, sizeof t->group, made ? "%.*s-%d" : "%.*s", strlen(name) < 32 ? 32 : 8, name,
             made);
    for (char *p = t->group; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-') *p = '_';
    if (asprintf(&t->path, "%s.%s.%d", file, t->group, rank) < 0) return free(t), NULL;
    pthread_mutex_init(&t->lock, NULL);
    span_log_init(&t->log, 1);
    return t;
}

struct call_trace *call_trace_of(struct group *group) {
    return group ? group->trace : NULL;
}

void call_trace_add(struct call_trace *t, const char *name, uint64_t bytes, int64_t start_ns,
                    int64_t end_ns) {
    struct span span = {.start_ns = start_ns, .end_ns = end_ns, .bytes = bytes};
    snprintf(span.name, sizeof span.name, "%s", name);
    pthread_mutex_lock(&t->lock);
    span_add(&t->log, &span);
    pthread_mutex_unlock(&t->lock);
}

static int write_file(const struct call_trace *t) {
    struct atomic_file file = {0};
    struct json_writer w;
    CHECK(atomic_open(&file, t->path));
    json_start(&w, file.file);
    json_object(&w, NULL);
    json_object(&w, "otherData");
    json_integer(&w, "duet_calls", 1);
    json_string(&w, "group", t->group);
    json_integer(&w, "rank", t->rank);
    json_integer(&w, "ranks", t->ranks);
    json_close(&w);
    json_array(&w, "traceEvents");
    for (const struct span *s = t->log.spans; s < t->log.spans + t->log.count; s++) {
        int is_message = !strcmp(s->name, "send") || !strcmp(s->name, "recv");
        json_slice(&w, t->rank, is_message ? MESSAGES : COLLECTIVES, s->name, NULL, s->start_ns,
                   s->end_ns);
        json_natural(&w, "bytes", s->bytes);
        json_close(&w);
        json_close(&w);
    }
    json_close(&w);
    json_close(&w);
    int code = json_finish(&w, t->path);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

void call_trace_close(struct call_trace *t) {
    struct failures job = {.code = OK}; /* the group may have failed */
    if (!t) return;
    failures_add(&job, ERR_FAILED);
    if (write_file(t))
        fprintf(stderr, "%s: warning: DUET_TRACE: rank %d: %s\n", program_name(), t->rank,
                error_message());
    failures_end(&job); /* restores its message as the last one */
    pthread_mutex_destroy(&t->lock);
    span_log_free(&t->log);
    free(t->path);
    free(t);
}
