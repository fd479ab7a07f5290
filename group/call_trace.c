/* Records the calls of a group and their times: see call_trace.h. */
#include "group/call_trace.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/program_name.h"
#include "base/text/json.h"
#include "group/state.h"

enum { COLLECTIVES = 1, MESSAGES }; /* tracks of the trace */

struct call_trace {
    pthread_mutex_t lock;    /* collectives and messages have their own threads */
    struct json_writer json; /* writes to `text`, because a forked child would flush a file twice */
    char *text, *path;
    size_t bytes;
    char group[64];
    int rank, ddps;
};

static void free_trace(struct call_trace *t) {
    if (t->json.file) fclose(t->json.file);
    pthread_mutex_destroy(&t->lock);
    free(t->text);
    free(t->path);
    free(t);
}

static struct call_trace *open_trace(const char *group, int rank, int n) {
    const char *file = getenv("DUET_TRACE");
    struct call_trace *t = file && *file ? calloc(1, sizeof *t) : NULL;
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->rank = rank;
    snprintf(t->group, sizeof t->group, "%s", group);
    FILE *text = open_memstream(&t->text, &t->bytes);
    json_start(&t->json, text);
    if (!text || asprintf(&t->path, "%s.%s.%d", file, group, rank) < 0)
        return t->path = NULL, free_trace(t), NULL;
    json_object(&t->json, NULL);
    json_object(&t->json, "otherData");
    json_integer(&t->json, "duet_calls", 1);
    json_string(&t->json, "group", group);
    json_integer(&t->json, "rank", rank);
    json_integer(&t->json, "ranks", n);
    json_close(&t->json);
    json_array(&t->json, "traceEvents");
    return t;
}

/* The group's name, in letters that every file system allows. A job's name may be drawn at random,
 * 32 digits of a UUID, of which the first eight tell groups apart. */
struct call_trace *call_trace_open(const char *name, int made, int rank, int n) {
    char group[64];
    snprintf(group, sizeof group, made ? "%.*s-%d" : "%.*s", strlen(name) < 32 ? 32 : 8, name,
             made);
    for (char *p = group; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-') *p = '_';
    return open_trace(group, rank, n);
}

struct call_trace *call_trace_open_ddp(struct group *group) {
    struct call_trace *of = group ? group->trace : NULL;
    char name[64];
    if (!of) return NULL;
    snprintf(name, sizeof name, "%.40s-ddp%d", of->group, of->ddps++);
    return open_trace(name, of->rank, group->n);
}

void call_trace_add(struct call_trace *t, const char *name, uint64_t bytes, int64_t start_ns) {
    int64_t end_ns = now_ns();
    int is_message = !strcmp(name, "send") || !strcmp(name, "recv");
    pthread_mutex_lock(&t->lock);
    json_slice(&t->json, t->rank, is_message ? MESSAGES : COLLECTIVES, name, NULL, start_ns,
               end_ns);
    json_natural(&t->json, "bytes", bytes);
    json_close(&t->json);
    json_close(&t->json);
    pthread_mutex_unlock(&t->lock);
}

static int write_file(struct call_trace *t) {
    struct atomic_file file = {0};
    json_close(&t->json);
    json_close(&t->json);
    CHECK(json_finish(&t->json, t->path)); /* even if there was no memory for the text */
    CHECK(atomic_open(&file, t->path));
    fwrite(t->text, 1, t->bytes, file.file);
    int code = atomic_commit(&file);
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
    free_trace(t);
}
