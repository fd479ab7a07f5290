/* A span log is a growing array with one writer. It is read when the writer is done, so it needs no
 * lock. */
#include "trace/span.h"

#include <stdlib.h>
#include <string.h>

const char *phase_name(enum phase phase) {
    static const char *const names[PHASE_COUNT] = {
        "none",    "loader",    "input",     "scatter",      "replicate",
        "forward", "gather",    "loss",      "scatter_grad", "backward",
        "reduce",  "allreduce", "optimizer", "evaluate",     "proof"};
    return (unsigned)phase < PHASE_COUNT ? names[phase] : "unknown";
}

const char *lane_name(enum lane lane) {
    static const char *const names[LANE_COUNT] = {"compute", "comm", "copy", "host"};
    return (unsigned)lane < LANE_COUNT ? names[lane] : "unknown";
}

void span_log_init(struct span_log *log, int on) {
    memset(log, 0, sizeof *log);
    log->on = on;
}

void span_log_free(struct span_log *log) {
    if (!log) return;
    free(log->spans);
    memset(log, 0, sizeof *log);
}

/* The capacity doubles, so a log is reallocated some twenty times in a run. */
static int log_grow(struct span_log *log) {
    size_t capacity = log->capacity ? 2 * log->capacity : 1024;
    struct span *spans = realloc(log->spans, capacity * sizeof *spans);
    if (!spans) return 0;
    log->spans = spans;
    log->capacity = capacity;
    return 1;
}

void span_add(struct span_log *log, const struct span *span) {
    if (!log || !log->on) return;
    if (log->count == log->capacity && !log_grow(log)) {
        log->dropped++;
        return;
    }
    log->spans[log->count] = *span;
    log->spans[log->count++].name[sizeof span->name - 1] = 0;
}
