/* The calls that a program makes, and its waits for their results. A call from a pass is also an op
 * of the pass's tape (remote_op.c). rref.c has the calls by references outside passes. */
#include "rpc/autograd.h"

int call_finish(struct duet_future *f, int code, struct duet_rpc_value *result) {
    if (result) *result = duet_rpc_none();
    if (!code) code = duet_future_wait(f, result);
    duet_future_free(f);
    return code;
}

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
    duet_future *f;
    int code = duet_rpc_async(&f, rpc, to, function, args, count, timeout_s);
    return call_finish(f, code, result);
}

int duet_future_wait(duet_future *f, struct duet_rpc_value *result) {
    if (result) *result = duet_rpc_none();
    if (!f) return fail(ERR_USAGE, "rpc: wait: no future was given");
    pthread_mutex_lock(&f->rpc->lock);
    const int over = f->rpc->over; /* the program has kept the future beyond the worker's end */
    pthread_mutex_unlock(&f->rpc->lock);
    if (over) return fail(ERR_FAILED, "rpc: %s: the worker has been shut down", f->function);
    CHECK(future_result(f, f->op ? f->op->pass->device : f->rpc->device, result));
    return f->op && result ? remote_op_result(f->op, result) : OK;
}

enum { MOST_WAITED = 1 << 20 };

int duet_future_wait_all(duet_future *const *futures, int count) {
    struct duet_future *wrong = NULL;
    if (count < 0 || count > MOST_WAITED || (count && !futures))
        return fail(ERR_USAGE, "rpc: wait_all: %d futures: give an array of 0 to %d", count,
                    (int)MOST_WAITED);
    for (int i = 0; i < count; i++) {
        if (!futures[i]) return fail(ERR_USAGE, "rpc: wait_all: future %d is NULL", i);
        if (future_result(futures[i], NULL, NULL) && !wrong) wrong = futures[i];
    }
    return wrong ? future_result(wrong, NULL, NULL) : OK;
}

/* ---- from a pass ---- */

static int check_tape(const duet_tape *tape) {
    if (tape && tape->remote) return OK;
    return fail(ERR_USAGE, "autograd: call: give a tape of duet_autograd_pass or of "
                           "duet_autograd_call_pass");
}

int duet_autograd_async(duet_future **out, duet_tape *tape, const char *to, const char *function,
                        const struct duet_rpc_value *args, int count, double timeout_s) {
    struct outgoing o;
    CHECK_OUT(out);
    CHECK(check_tape(tape));
    CHECK(check_call(&o, tape->remote->rpc, to, function, args, count, timeout_s));
    return remote_op_begin(out, tape, &o);
}

int duet_autograd_sync(duet_tape *tape, const char *to, const char *function,
                       const struct duet_rpc_value *args, int count, double timeout_s,
                       struct duet_rpc_value *result) {
    duet_future *f;
    int code = duet_autograd_async(&f, tape, to, function, args, count, timeout_s);
    return call_finish(f, code, result);
}

int duet_autograd_rref_sync(duet_tape *tape, duet_rref *rref, const char *method,
                            const struct duet_rpc_value *args, int count, double timeout_s,
                            struct duet_rpc_value *result) {
    struct outgoing o;
    duet_future *f;
    if (result) *result = duet_rpc_none();
    CHECK(check_tape(tape));
    CHECK(method_of(&o, rref, method, args, count, timeout_s));
    int code = remote_op_begin(&f, tape, &o);
    return call_finish(f, code, result);
}

int duet_autograd_to_here(duet_tape *tape, duet_rref *rref, double timeout_s,
                          struct duet_rpc_value *value) {
    struct outgoing o;
    duet_future *f;
    if (value) *value = duet_rpc_none();
    CHECK(check_tape(tape));
    if (!rref || !value)
        return fail(ERR_USAGE, "autograd: to_here: no %s was given", rref ? "place" : "reference");
    CHECK(to_owner(&o, rref, "duet.to_here", timeout_s));
    int code = remote_op_begin(&f, tape, &o);
    return call_finish(f, code, value);
}
