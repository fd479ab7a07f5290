/* Who called whom by remote calls, from the files that DUET_TRACE=FILE left (rpc/trace.c):
 * FILE.rpc.RANK, one of each worker, all of one machine.
 *
 *     {"duet_rpc": 1, "rank": 0, "workers": ["agent", "observer1"], "lost": 0,
 *      "called": [["run_episode", 1, ID, WITHIN, FAILED, IN, OUT, BEGAN, ENDED], ...],
 *      "served": [["select_action", 1, ID, 0, FAILED, IN, OUT, CAME, BEGAN, ENDED], ...]}
 *
 * A call is its function, the worker at its other end, its id, the id of the call in whose function
 * it was made (0: in none), 1 where it failed, the bytes that came and those that went, and times
 * in nanoseconds. Both ends of a call have its id, so their times tell what it spent where:
 *
 *     caller   begun |....................................................| ended
 *                     there                                          back
 *     callee              came |  queue  | began    work    | done
 *                                            calls of its own                                  */
#ifndef REPORT_CALLS_REMOTE_H
#define REPORT_CALLS_REMOTE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/text/json.h"
#include "base/limits.h"
#include "report/chrome/chrome_trace.h"

enum { REMOTE_NAME = 128 };

struct remote_call {
    uint64_t id, within, bytes; /* bytes: there and back */
    int function, from, to, failed;
    int has_caller, has_callee; /* 0: that worker left no file, or did not keep the call */
    int64_t begun, ended;       /* at the caller */
    int64_t came, began, done;  /* at the callee */
    int64_t nested_ns;          /* of the work: it waited for calls of its own */
};

struct remote_job {
    int workers, files; /* workers 0: there are no such files */
    char worker[MAX_DEVICES][REMOTE_NAME], has_file[MAX_DEVICES];
    char (*function)[REMOTE_NAME]; /* [functions], owned */
    int functions;
    struct remote_call *call; /* [count], by id, owned */
    size_t count, room;
    int64_t lost, first_ns, last_ns;
};

/* Adds one file, of which `root` is the object. ERR_FAILED: it is torn; ERR_MEMORY. */
int remote_read(struct remote_job *job, const char *path, const struct json *root);
/* Joins the ends, when all files have been read. ERR_MEMORY. */
int remote_join(struct remote_job *job);
void remote_free(struct remote_job *job);

/* From the beginning to the end, as much as is known of it. */
int64_t remote_start(const struct remote_call *call);
int64_t remote_end(const struct remote_call *call);

void remote_print(FILE *file, int width, const struct remote_job *job);
/* A run of a timeline. */
struct trace_run remote_timeline(const struct remote_job *job);

#endif
