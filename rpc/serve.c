/* Calls to here: a thread of the pool makes the arguments, takes the device of the function, runs
 * it and sends the answer. What a function does wrong goes back as one line; nothing is printed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"
#include "rpc/region.h"

/* ---- functions ---- */

int add_function(duet_rpc *rpc, const struct duet_rpc_function *f, int internal) {
    size_t length = f && f->name ? strlen(f->name) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)f->name[i]) && !strchr("_.", f->name[i])) length = 0;
    if (!length || length >= NAME_BYTES || !f->run)
        return fail(ERR_USAGE,
                    "rpc: function '%.140s': give a function, and a name of 1 to %d letters, "
                    "digits, '_' or '.'",
                    f && f->name ? f->name : "", NAME_BYTES - 1);
    if (!internal && !strncmp(f->name, "duet.", 5))
        return fail(ERR_USAGE,
                    "rpc: function '%s': names that begin with 'duet.' are the library's", f->name);
    struct function *new = calloc(1, sizeof *new);
    if (!new) return fail(ERR_MEMORY, "rpc: no host memory for a function");
    snprintf(new->name, sizeof new->name, "%s", f->name);
    new->run = f->run;
    new->context = f->context;
    new->device = internal ? NULL : f->device ? f->device : rpc->device;
    new->internal = internal;
    pthread_mutex_lock(&rpc->lock);
    struct function *same = rpc->functions;
    while (same && strcmp(same->name, new->name))
        same = same->next;
    if (!same) {
        new->next = rpc->functions;
        rpc->functions = new;
    }
    pthread_mutex_unlock(&rpc->lock);
    if (!same) return OK;
    free(new);
    return fail(ERR_USAGE, "rpc: function '%s': there is one of this name already", f->name);
}

int duet_rpc_register(duet_rpc *rpc, const struct duet_rpc_function *function) {
    if (!rpc) return fail(ERR_USAGE, "rpc: register: no worker was given");
    return add_function(rpc, function, 0);
}

static struct function *find_function(duet_rpc *rpc, const char *name) {
    pthread_mutex_lock(&rpc->lock);
    struct function *f = rpc->functions;
    while (f && strcmp(f->name, name))
        f = f->next;
    pthread_mutex_unlock(&rpc->lock);
    return f;
}

/* ---- the library's own ---- */

/* In a context a parameter becomes a var of a pass here, and so may its gradient come back. What a
 * call of the same context has left here has its pass already, and the caller knows it: argument 0
 * then asks for the numbers of its vars. serve() has taken the device. */
static int run_to_here(duet_rpc_call *call, void *context) {
    (void)context;
    struct owned *o = call->self;
    duet_tape *t;
    if (o->object)
        return fail(ERR_USAGE,
                    "the reference is to an object of '%s', which cannot be copied: "
                    "call its methods",
                    o->type);
    call->answer.numbered = call->args.count != 0;
    if (!o->params) return duet_rpc_return(call, o->value);
    if (!call->context)
        return duet_rpc_return(call, duet_rpc_tensor(duet_params_value(o->params, o->param)));
    CHECK(duet_autograd_call_pass(&t, call, o->params, 1));
    return duet_rpc_return(call, duet_rpc_var(pass_parameter(t, o->param)));
}

static int run_wait(duet_rpc_call *call, void *context) {
    (void)call, (void)context; /* the value is there: serve_call has waited for it */
    return OK;
}

/* Who has not come yet. */
static int missing(const duet_rpc *rpc, enum meeting at) {
    char names[256] = "";
    for (int r = 0; r < rpc->world; r++)
        if (!(rpc->who_came[at] >> r & 1))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.100s'",
                     names[0] ? ", " : "", rpc->peers[r].name);
    return fail(ERR_TIMEOUT, "%s: worker %s did not come in time",
                at == AT_END ? "shutdown" : "init", names);
}

/* At rank 0: until all workers have come, or the caller is about to give up. */
static int meet(duet_rpc_call *call, enum meeting at) {
    duet_rpc *rpc = call->rpc;
    int code = OK;
    struct pause pause = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    rpc->who_came[at] |= (uint64_t)1 << call->from;
    if (++rpc->came[at] == rpc->world) rpc->met[at] = 1;
    pthread_cond_broadcast(&rpc->changed);
    pthread_cond_broadcast(&rpc->ended);
    for (int late = 0;;) { /* one that has come may still die while it waits */
        for (int r = 0; r < rpc->world && !code; r++)
            if (rpc->peers[r].state == PEER_GONE)
                code = peer_error(rpc, r, at == AT_END ? "shutdown" : "init");
        if (rpc->met[at] || code || rpc->stop) break;
        if (late) code = missing(rpc, at);
        if (late) break;
        late = wait_changed(rpc, call->deadline) != OK;
    }
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, pause);
    return code;
}

static int run_begin(duet_rpc_call *call, void *context) {
    (void)context;
    return meet(call, AT_START);
}

static int run_leave(duet_rpc_call *call, void *context) {
    (void)context;
    return meet(call, AT_END);
}

int register_internal(duet_rpc *rpc) {
    static const struct duet_rpc_function own[] = {
        {"duet.to_here", run_to_here, NULL, NULL},
        {"duet.wait", run_wait, NULL, NULL},
        {"duet.begin", run_begin, NULL, NULL},
        {"duet.leave", run_leave, NULL, NULL},
        {"duet.backward", serve_backward, NULL, NULL},
        {"duet.Optimizer", serve_optimizer, NULL, NULL},
        {"duet.Optimizer.step", serve_optimizer_step, NULL, NULL},
        {"duet.Optimizer.set_lr", serve_optimizer_rate, NULL, NULL}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        CHECK(add_function(rpc, &own[i], 1));
    return OK;
}

/* ---- one call ---- */

struct request {
    struct frame *frame;
    struct call_head head;
    const char *name; /* in the frame */
    struct path path;
    struct wire_in values;
    struct wire_value *wire; /* [count], owned */
    int count, made;
};

static int read_request(struct request *r) {
    r->values = wire_in_of(r->frame);
    CHECK(wire_get(&r->values, &r->head, sizeof r->head));
    CHECK(wire_get_text(&r->values, &r->name));
    if (strlen(r->name) >= NAME_BYTES || r->head.count > r->values.bytes ||
        r->head.depth > MOST_PATH)
        return fail(ERR_FAILED, "rpc: a call makes no sense");
    r->path.depth = r->head.depth;
    return wire_get(&r->values, r->path.step, r->head.depth * sizeof *r->path.step);
}

/* Where the call stands in its context, and the pass that it goes back over. */
static int find_pass(duet_rpc_call *call, const struct request *r) {
    call->id = r->frame->header.call;
    if (r->frame->header.timeout) /* a tenth is left for the answer */
        call->deadline = r->frame->came + (int64_t)(r->frame->header.timeout / 10 * 9);
    call->path = r->path;
    call->context = r->frame->context;
    call->device = call->function->device;
    if (!r->head.pass) {
        if (!r->head.context || call->context) return OK;
        return fail(ERR_MEMORY, "autograd: no host memory for a context");
    }
    pthread_mutex_lock(&call->rpc->lock);
    call->back = call->context ? pass_find(call->context, r->head.pass) : NULL;
    pthread_mutex_unlock(&call->rpc->lock);
    if (!call->back)
        return fail(ERR_USAGE, "Could not find autograd context with id: %llu: it has ended",
                    (unsigned long long)r->head.context);
    call->device = call->back->device;
    return OK;
}

static int read_args(struct request *r) {
    r->wire = calloc((size_t)r->head.count + 1, sizeof *r->wire);
    if (!r->wire) return fail(ERR_MEMORY, "no host memory for %u arguments", r->head.count);
    for (; r->count < (int)r->head.count; r->count++)
        CHECK(wire_read(&r->values, &r->wire[r->count]));
    return OK;
}

static int make_args(duet_rpc_call *call, struct request *r) {
    struct duet_rpc_value *items = calloc((size_t)r->count + 1, sizeof *items);
    if (!items) return fail(ERR_MEMORY, "no host memory for %d arguments", r->count);
    int code = OK;
    r->made = 1;
    call->args = duet_rpc_list(items, 0);
    for (int i = 0; i < r->count; i++) {
        CHECK_KEEP(value_make(call->rpc, &r->wire[i], call->device, call->from, &items[i]), code);
        call->args.count = i + 1;
    }
    region_release(r->frame->beside); /* before the answer, so that the next call may have it */
    r->frame->beside = NULL;
    return code;
}

/* What the function has returned becomes the value behind the reference. */
static int keep_result(duet_rpc_call *call, uint64_t rref) {
    struct duet_rpc_value value = duet_rpc_none();
    values_sent(&call->answer);
    if (call->returned && !call->object)
        CHECK(value_take(call->rpc,
                         (struct wire_in){call->answer.data, .bytes = call->answer.bytes},
                         call->device, call->rpc->rank, &value));
    pthread_mutex_lock(&call->rpc->lock);
    struct owned *o = owned_find(call->rpc, rref);
    o->value = value;
    o->object = call->object;
    o->destroy = call->destroy;
    o->device = call->device;
    pthread_mutex_unlock(&call->rpc->lock);
    call->object = NULL;
    owned_ready(call->rpc, o);
    return OK;
}

static int run(duet_rpc_call *call, struct request *r) {
    int code = make_args(call, r);
    if (!code) {
        fail(OK, "%s", ""); /* the thread may have the text of an earlier call */
        code = call->function->run(call, call->function->context);
        if (code && !*error_message()) fail(code, "it returned %d, and has not said why", code);
    }
    if (code < OK || code > ERR_PEER) code = fail(ERR_FAILED, "it returned %d", code);
    if (call->failed.code) code = failures_end(&call->failed); /* it may have gone on regardless */
    if (!code && r->head.rref) code = keep_result(call, r->head.rref);
    if (!code && call->object)
        code = fail(ERR_USAGE, "it returns an object: call it by duet_remote");
    if (call->object && call->destroy) call->destroy(call->object);
    pass_of_call_ends(call, code);
    duet_rpc_value_free(&call->args);
    return code;
}

/* Finds all that the call needs, and runs it on its device. */
static int serve(duet_rpc_call *call, struct request *r) {
    duet_rpc *rpc = call->rpc;
    const struct frame_header *h = &r->frame->header;
    CHECK(read_request(r));
    CHECK(read_args(r));
    call->function = find_function(rpc, r->name);
    if (!call->function)
        return fail(ERR_USAGE, "worker '%s' has no function of this name", rpc->name);
    if (r->head.self) CHECK(owned_wait(rpc, r->head.self, 0, &call->self));
    CHECK(find_pass(call, r));
    if (call->function->run == run_to_here && call->self) call->device = call->self->device;
    struct device_lock *l = lock_of(rpc, call->device);
    if (l) device_lock_take(l);
    int code = h->timeout && (uint64_t)(now_ns() - r->frame->came) > h->timeout
                   ? fail(ERR_TIMEOUT, "its caller has given up")
                   : run(call, r);
    if (l) device_lock_give(l);
    return code;
}

static void answer(duet_rpc_call *call, const struct request *r, int code) {
    const struct failures failed = failures_of(code);
    struct frame *f = frame_new(FRAME_ANSWER, 0);
    if (code || !f)
        values_take_back(call->rpc, &call->answer);
    else
        values_sent(&call->answer);
    if (!f) { /* the caller's deadline will tell */
        wire_drop(&call->answer);
        return;
    }
    if (code || r->head.rref || !call->returned) {
        wire_drop(&call->answer);
        call->answer = (struct wire_out){.spare = call->answer.spare};
        if (code)
            wire_put(&call->answer, failed.text, strlen(failed.text));
        else
            wire_put_u8(&call->answer, DUET_RPC_NONE);
    }
    wire_give(&call->answer, f);
    f->header.code = code;
    f->header.call = r->frame->header.call;
    send_frame(call->rpc, call->from, f);
}

void serve_call(duet_rpc *rpc, struct frame *frame) {
    struct request r = {.frame = frame};
    duet_rpc_call call = {
        .rpc = rpc, .from = frame->from, .to = frame->from, .answer = {.spare = &rpc->spare}};
    if (frame->header.flags & CALL_REMOTE) call.to = rpc->rank;
    int code = serve(&call, &r);
    if (!code && call.answer.failed) code = fail(ERR_MEMORY, "no host memory for the result");
    if (code && r.head.rref) owned_fail(rpc, r.head.rref, code);
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < r.count && !r.made; i++) /* the function did not get them */
        value_refuse(rpc, &r.wire[i], frame->from);
    if (r.head.rref) life_release_object(&rpc->life, r.head.rref);
    if (frame->self) life_release_object(&rpc->life, frame->self);
    if (frame->context) context_leave(frame->context);
    pthread_mutex_unlock(&rpc->lock);
    answer(&call, &r, code);
    for (int i = 0; i < r.count; i++)
        wire_value_free(&r.wire[i]);
    free(r.wire);
    frame_free(frame);
}
