/* The program's calls and futures. */
#include <stdio.h>

#include "rpc/autograd.h"

int duet_rpc_async(duet_future **out, duet_rpc *rpc, const char *to, const char *function,
                   const struct duet_rpc_value *args, int count, double timeout_s) {
    struct outgoing o;
    CHECK_OUT(out);
    CHECK(check_call(&o, rpc, to, function, args, count, timeout_s));
    return call_begin(out, rpc, &o);
}

int duet_rpc_sync(duet_rpc *rpc, const char *to, const char *function,
                  const struct duet_rpc_value *args, int count, double timeout_s,
                  struct duet_rpc_value *result) {
    struct outgoing o;
    if (result) *result = duet_rpc_none();
    CHECK(check_call(&o, rpc, to, function, args, count, timeout_s));
    return call_sync(rpc, &o, result);
}

/* The worker may have been shut down, and the program has kept the future. Under the lock. */
static int check_over(const struct duet_future *f) {
    return f->rpc->over ? fail(ERR_FAILED, "rpc: %s: the worker has been shut down", f->function)
                        : OK;
}

int duet_future_wait(duet_future *f, struct duet_rpc_value *result) {
    if (result) *result = duet_rpc_none();
    if (!f) return fail(ERR_USAGE, "rpc: wait: no future was given");
    pthread_mutex_lock(&f->rpc->lock);
    int over = check_over(f);
    pthread_mutex_unlock(&f->rpc->lock);
    if (over) return over;
    CHECK(future_result(f, f->op ? f->op->pass->device : f->rpc->device, result));
    return f->op && result ? remote_op_result(f->op, result) : OK;
}

int duet_future_done(duet_future *f) {
    if (!f) return 0;
    pthread_mutex_lock(&f->rpc->lock);
    int done = f->done;
    pthread_mutex_unlock(&f->rpc->lock);
    return done;
}

int duet_future_then(duet_future *f, void (*run)(void *context, int code), void *context) {
    if (!f || !run) return fail(ERR_USAGE, "rpc: then: no %s was given", f ? "function" : "future");
    pthread_mutex_lock(&f->rpc->lock);
    int code = f->then ? fail(ERR_USAGE, "rpc: then: this future has one") : check_over(f);
    if (!code) {
        f->then = run;
        f->then_context = context;
        if (f->done) future_start_then(f);
    }
    pthread_mutex_unlock(&f->rpc->lock);
    return code;
}

enum { MOST_WAITED = 1 << 20 };

int duet_future_wait_all(duet_future *const *futures, int count) {
    struct duet_future *wrong = NULL;
    if (count < 0 || count > MOST_WAITED || (count && !futures))
        return fail(ERR_USAGE, "rpc: wait_all: %d futures: give an array of 0 to %d", count,
                    (int)MOST_WAITED);
    for (int i = 0; i < count; i++) {
        if (!futures[i]) return fail(ERR_USAGE, "rpc: wait_all: future %d is NULL", i);
        future_wait(futures[i]);
        if (!wrong && futures[i]->code) wrong = futures[i];
    }
    return wrong ? fail(wrong->code, "%s", wrong->text) : OK;
}
