/* Calls from this worker: sends them, and lets their futures wait for the answers.
 *
 * A future is held by the program and by the table of calls without an answer. It ends with the
 * answer, with the end of the worker it was sent to, or at its deadline, which the waiting thread
 * checks. As in PyTorch, the worker that runs the function does not notice the deadline. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

/* ---- preparing ---- */

static int check_count(const char *function, const struct duet_rpc_value *args, int count) {
    if (count < 0 || count > MOST_VALUES)
        return fail(ERR_USAGE, "rpc: %s: %d arguments: give 0 to %d", function, count, MOST_VALUES);
    if (count && !args)
        return fail(ERR_USAGE, "rpc: %s: %d arguments, and NULL in their place", function, count);
    return OK;
}

int check_call(struct outgoing *o, duet_rpc *rpc, const char *to, const char *function,
               const struct duet_rpc_value *args, int count, double timeout_s) {
    *o = (struct outgoing){
        .function = function, .args = args, .count = count, .timeout_s = timeout_s};
    if (!rpc || !function)
        return fail(ERR_USAGE, "rpc: call: no %s was given", rpc ? "function" : "worker");
    CHECK(check_count(function, args, count));
    CHECK(user_name_check(function));
    return find_worker(rpc, to, &o->to);
}

int to_owner(struct outgoing *o, duet_rref *r, const char *function, double timeout_s) {
    *o = (struct outgoing){
        .to = r->owner, .function = function, .self = r->id, .timeout_s = timeout_s};
    pthread_mutex_lock(&r->rpc->lock);
    futures_expire(r->rpc);
    int late = r->created && r->created->code == ERR_TIMEOUT;
    pthread_mutex_unlock(&r->rpc->lock);
    return late ? fail(ERR_TIMEOUT,
                       "rpc: worker '%s': %s: the creation of this reference timed out: its value "
                       "may not exist there",
                       r->rpc->peers[r->owner].name, r->created->function)
                : OK;
}

int method_of(struct outgoing *o, duet_rref *r, const char *method,
              const struct duet_rpc_value *args, int count, double timeout_s) {
    if (!r || !method)
        return fail(ERR_USAGE, "rpc: proxy: no %s was given", r ? "method" : "reference");
    CHECK(check_count(method, args, count));
    CHECK(user_name_check(method));
    CHECK(to_owner(o, r, method, timeout_s));
    o->args = args;
    o->count = count;
    return OK;
}

/* ---- sending ---- */

/* *ns: the timeout of a call; 0: it has none. */
static int timeout_of(duet_rpc *rpc, double timeout_s, int64_t *ns) {
    if (isnan(timeout_s)) return fail(ERR_USAGE, "rpc: timeout: it is not a number");
    *ns = timeout_s == 0                     ? rpc->timeout_ns
          : timeout_s < 0 || timeout_s > 1e9 ? 0
                                             : (int64_t)(timeout_s * 1e9) + 1;
    return OK;
}

static int write_call(const struct duet_future *f, const struct outgoing *o, struct wire_out *w) {
    struct message m = {.kind = MESSAGE_CALL,
                        .call = f->id,
                        .self = o->self,
                        .context = o->context ? o->context->id : 0,
                        .leaves = o->leaves != NULL,
                        .text = o->function};
    if (o->path) m.path = *o->path;
    message_begin(w, &m);
    wire_put_as(w, uint8_t, DUET_RPC_LIST);
    wire_put_as(w, uint32_t, (uint32_t)o->count);
    for (int i = 0; i < o->count; i++)
        CHECK(value_write(f->rpc, w, &o->args[i], 0));
    CHECK(wire_error(w));
    return values_pass_on(f->rpc, w, o->to, f->deadline);
}

/* The future holds the pass that the call is made from, and its context. */
static void hold_pass(struct duet_future *f, const struct outgoing *o) {
    f->context = o->context;
    f->context->users++;
    f->holds = o->op ? o->op->pass->call : 0;
    if (f->holds) life_hold(&f->rpc->life, f->holds);
}

/* Puts the future into the table. ERR_PEER: the worker is gone. Under the lock. */
static int await_answer(duet_rpc *rpc, struct duet_future *f, const struct outgoing *o) {
    if (rpc->stop) return fail(ERR_FAILED, "rpc: %s: the worker has been shut down", f->function);
    if (rpc->peers[f->to].state != PEER_HERE) return peer_error(rpc, f->to, f->function);
    if (o->leaves && !(*o->leaves = rref_arrives(rpc, f->id, f->to)))
        return fail(ERR_MEMORY, "rpc: out of host memory for a reference");
    if (o->context) hold_pass(f, o);
    f->next = rpc->pending;
    rpc->pending = f;
    rpc->kept++;
    f->refs++;
    return OK;
}

/* Under one lock, so that the end of what it leaves follows the call. */
static int send_call(duet_rpc *rpc, struct duet_future *f, const struct outgoing *o,
                     struct frame *frame) {
    pthread_mutex_lock(&rpc->lock);
    int code = await_answer(rpc, f, o);
    if (code)
        frame_free(frame);
    else
        send_frame(rpc, o->to, frame);
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

int call_begin(struct duet_future **out, duet_rpc *rpc, const struct outgoing *o) {
    struct wire_out w = {.vars = o->vars};
    int64_t timeout = 0;
    *out = NULL;
    if (strlen(o->function) >= NAME_BYTES)
        return fail(ERR_USAGE, "rpc: function '%.140s': the name may have at most %d bytes",
                    o->function, NAME_BYTES - 1);
    CHECK(timeout_of(rpc, o->timeout_s, &timeout));
    struct duet_future *f = calloc(1, sizeof *f);
    if (!f) return fail(ERR_MEMORY, "rpc: out of host memory");
    pthread_mutex_lock(&rpc->lock);
    *f = (struct duet_future){
        .rpc = rpc, .id = new_id(rpc), .to = o->to, .refs = 1, .op = o->op, .began = now_ns()};
    pthread_mutex_unlock(&rpc->lock);
    cond_open(&f->ended);
    snprintf(f->function, sizeof f->function, "%s", o->function);
    f->deadline = timeout ? f->began + timeout : 0;
    int code = write_call(f, o, &w);
    struct frame *frame = code ? NULL : message_end(&w);
    if (!code) code = frame ? send_call(rpc, f, o, frame) : wire_error(&w);
    values_done(rpc, &w);
    if (code)
        future_free(f);
    else
        *out = f;
    return code;
}

/* ---- the end of a call; all of it under the worker's lock ---- */

static void refuse_answer(struct duet_future *f) {
    message_drop(f->answer);
    f->answer = NULL;
}

static void future_end(struct duet_future *f, int code) {
    struct duet_future **at = &f->rpc->pending;
    int freed = f->refs == 1; /* 1: the program has freed it */
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    f->done = 1;
    f->code = code;
    pthread_cond_broadcast(&f->ended);
    pthread_cond_broadcast(&f->rpc->changed);
    if (freed) refuse_answer(f);
    future_drop(f);
}

/* The caller has the lock. */
static void future_fail(struct duet_future *f, int code) {
    snprintf(f->text, sizeof f->text, "%s", error_message());
    future_end(f, code);
}

void future_answer(duet_rpc *rpc, struct message *answer) {
    struct duet_future *f = rpc->pending;
    while (f && f->id != answer->call)
        f = f->next;
    if (!f || f->to != answer->from) { /* its caller has given up, or never existed */
        message_drop(answer);
    } else if (answer->code) { /* the error names worker, function and cause */
        int code = fail((int)answer->code, "rpc: worker '%s': %s: %s", rpc->peers[f->to].name,
                        f->function, answer->text);
        message_drop(answer);
        future_fail(f, code);
    } else {
        f->answer = answer;
        future_end(f, OK);
    }
}

void futures_of_dead(duet_rpc *rpc, int rank) {
    for (struct duet_future *f = rpc->pending, *next; f; f = next) {
        next = f->next;
        if (f->to != rank) continue;
        future_fail(f, rpc->stop ? fail(ERR_FAILED,
                                        "rpc: %s: this worker was shut down before the answer came",
                                        f->function)
                                 : peer_error(rpc, rank, f->function));
    }
}

void futures_expire(duet_rpc *rpc) {
    const int64_t now = now_ns();
    for (struct duet_future *f = rpc->pending, *next; f; f = next) {
        next = f->next;
        if (!f->deadline || f->deadline > now) continue;
        fail(ERR_TIMEOUT, "rpc: worker '%s': %s: no answer within %g s", rpc->peers[f->to].name,
             f->function, (double)(f->deadline - f->began) * 1e-9);
        future_fail(f, ERR_TIMEOUT);
    }
}

/* ---- waiting for the answer ---- */

static void future_wait(struct duet_future *f) {
    duet_rpc *rpc = f->rpc;
    pthread_mutex_lock(&rpc->lock);
    int done = f->done;
    pthread_mutex_unlock(&rpc->lock);
    if (done) return;
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    while (!f->done) /* the deadline, the peer's death or the end of this worker also sets `done` */
        if (rpc_wait(rpc, &f->ended, f->deadline)) futures_expire(rpc);
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, paused);
}

/* The result of an answer, made on this thread. */
static int take_answer(struct duet_future *f, duet_device *device, struct duet_rpc_value *result) {
    duet_rpc *rpc = f->rpc;
    pthread_mutex_lock(&rpc->lock);
    struct message *answer = f->answer;
    f->answer = NULL;
    pthread_mutex_unlock(&rpc->lock);
    if (!answer) return OK;
    int code = value_make(&answer->value, device);
    if (!code) {
        *result = answer->value;
        answer->value = duet_rpc_none();
    }
    pthread_mutex_lock(&rpc->lock);
    message_drop(answer);
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

int future_result(struct duet_future *f, duet_device *device, struct duet_rpc_value *result) {
    future_wait(f);
    return f->code ? fail(f->code, "%s", f->text) : result ? take_answer(f, device, result) : OK;
}

void duet_future_free(duet_future *f) {
    if (!f) return;
    duet_rpc *rpc = f->rpc;
    pthread_mutex_lock(&rpc->lock);
    if (f->done) refuse_answer(f);
    future_drop(f);
    unlock_or_end(rpc);
}
