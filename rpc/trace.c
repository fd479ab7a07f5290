/* Every call of a worker with its times, for `duet report`: DUET_TRACE=FILE (group/trace_file.h).
 *
 * A call is noted at both ends, under its id: by the caller when it was begun and when its answer
 * came, by the callee when it came, when the function began, and when that ended. All workers are
 * on one machine and share its clock, so the difference of two of these times is the way there, the
 * queue, the work or the way back. report/calls/calls.h says the form. */
#include <stdlib.h>

#include "group/trace_file.h"
#include "rpc/table.h"

struct noted {
    const struct stat_line *line;
    uint64_t id, within;
    int64_t came, began, ended;
    uint64_t in, out;
    int failed;
};

struct rpc_trace {
    struct noted *calls;
    size_t count, room, lost;
    int rank;
    char *path;
};

struct rpc_trace *rpc_trace_open(int rank) {
    char *path = trace_file_path("rpc", rank);
    struct rpc_trace *t = path ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        free(path);
        return NULL;
    }
    t->rank = rank;
    t->path = path;
    return t;
}

void rpc_trace_add(struct rpc_trace *t, const struct stat_line *line,
                   const struct stat_call *call) {
    struct noted *calls = trace_file_room(t->calls, &t->room, t->count, sizeof *calls);
    if (!calls) {
        t->lost++;
        return;
    }
    t->calls = calls;
    t->calls[t->count++] =
        (struct noted){line,        call->id, call->within, call->came,  call->began,
                       call->ended, call->in, call->out,    call->failed};
}

struct writing {
    const struct rpc_trace *trace;
    const duet_rpc *rpc;
};

static void write_call(struct json_writer *w, const struct noted *c) {
    fputc('\n', w->file);
    json_array(w, NULL);
    json_string(w, NULL, c->line->function);
    json_integer(w, NULL, c->line->worker);
    json_natural(w, NULL, c->id);
    json_natural(w, NULL, c->within);
    json_integer(w, NULL, c->failed);
    json_natural(w, NULL, c->in);
    json_natural(w, NULL, c->out);
    if (c->line->served) json_integer(w, NULL, c->came);
    json_integer(w, NULL, c->began);
    json_integer(w, NULL, c->ended);
    json_close(w);
}

static void write_members(struct json_writer *w, void *of) {
    const struct rpc_trace *t = ((struct writing *)of)->trace;
    const duet_rpc *rpc = ((struct writing *)of)->rpc;
    json_integer(w, "duet_rpc", 1);
    json_integer(w, "rank", rpc->rank);
    json_array(w, "workers");
    for (int r = 0; r < rpc->world; r++)
        json_string(w, NULL, rpc->peers[r].name);
    json_close(w);
    json_natural(w, "lost", t->lost);
    for (int served = 0; served < 2; served++) {
        json_array(w, served ? "served" : "called");
        for (size_t i = 0; i < t->count; i++)
            if (t->calls[i].line->served == served) write_call(w, &t->calls[i]);
        json_close(w);
    }
}

void rpc_trace_close(struct rpc_trace *t, duet_rpc *rpc) {
    if (!t) return;
    if (t->count || t->lost) /* an init that failed leaves nothing */
        trace_file_write(t->path, t->rank, write_members, &(struct writing){t, rpc});
    free(t->path);
    free(t->calls);
    free(t);
}
