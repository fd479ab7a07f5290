/* What is known of the calls of a worker: by function, of each one, and now and then on a line. */
#ifndef RPC_TABLE_H
#define RPC_TABLE_H

#include "rpc/agent.h"

enum { STAT_STEPS = 100 }; /* 1 us * 1.25^100 is 4900 s */

/* Calls of one function, at one worker or of one. */
struct stat_line {
    char function[NAME_BYTES];
    int worker, served;
    int64_t calls, failed, in, out;
    double sum_us, queue_us;
    int64_t steps[STAT_STEPS];
    int64_t calls_said; /* when live_line.c wrote its last line */
    double sum_us_said;
    struct stat_line *next;
};

/* ---- trace.c: DUET_TRACE=FILE ---- */

struct rpc_trace;
struct rpc_trace *rpc_trace_open(int rank); /* NULL: it is not set */
/* Under the lock. */
void rpc_trace_add(struct rpc_trace *trace, const struct stat_line *line,
                   const struct stat_call *call);
/* Writes the file. NULL is fine. */
void rpc_trace_close(struct rpc_trace *trace, duet_rpc *rpc);

/* ---- live_line.c: DUET_RPC_LIVE=SECONDS ---- */

enum { LIVE_BYTES = 512 };
int64_t live_every(void); /* ns; 0: never */
/* Under the lock: what has happened since the last line, over `ns`. */
void live_line(duet_rpc *rpc, int64_t ns, char text[LIVE_BYTES]);

#endif
