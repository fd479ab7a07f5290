/* Calls to here: a thread of the pool makes the arguments, takes the device of the function, runs
 * it and sends the answer. Errors of a function are returned to the caller as one line; nothing is
 * printed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

/* ---- functions ---- */

int user_name_check(const char *name) {
    if (strncmp(name, "duet.", 5) != 0) return OK;
    return fail(ERR_USAGE, "rpc: '%.140s': names that begin with 'duet.' are the library's", name);
}

int add_function(duet_rpc *rpc, const struct duet_rpc_function *f) {
    size_t length = f && f->name ? strlen(f->name) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)f->name[i]) && !strchr("_.", f->name[i])) length = 0;
    if (!length || length >= NAME_BYTES || !f->run)
        return fail(ERR_USAGE,
                    "rpc: function '%.140s': give a function, and a name of 1 to %d letters, "
                    "digits, '_' or '.'",
                    f && f->name ? f->name : "", NAME_BYTES - 1);
    CHECK(user_name_check(f->name));
    struct function *new = calloc(1, sizeof *new);
    if (!new) return fail(ERR_MEMORY, "rpc: no host memory for a function");
    snprintf(new->name, sizeof new->name, "%s", f->name);
    new->run = f->run;
    new->context = f->context;
    new->device = f->device ? f->device : rpc->device;
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

static const struct function *find_function(duet_rpc *rpc, const char *name, size_t length) {
    pthread_mutex_lock(&rpc->lock);
    const struct function *f = rpc->functions;
    while (f && (strncmp(f->name, name, length) || f->name[length]))
        f = f->next;
    pthread_mutex_unlock(&rpc->lock);
    return f;
}

/* A method is one of the class of its object, as the owner knows it. */
static int user_function(duet_rpc_call *call, const struct message *m) {
    const char *name = m->text, *dot = strrchr(name, '.');
    const struct owner *o = call->self;
    size_t length = dot ? (size_t)(dot - name) : 0;
    if (o && (!o->object || !dot || strlen(o->type) != length || strncmp(name, o->type, length)))
        return fail(ERR_USAGE, "it is no method of the referenced object");
    if (!o && dot && find_function(call->rpc, name, length))
        return fail(ERR_USAGE, "it is a method: call it by a reference to an object");
    const struct function *f = find_function(call->rpc, name, strlen(name));
    if (!f) return fail(ERR_USAGE, "worker '%s' has no function of this name", call->rpc->name);
    call->run = f->run;
    call->context_of_run = f->context;
    call->device = f->device;
    return OK;
}

/* ---- one call ---- */

/* What the function has returned becomes the value behind the reference. */
static int keep_result(duet_rpc_call *call, const struct message *m) {
    struct duet_rpc_value value = duet_rpc_none();
    if (call->returned && !call->object)
        CHECK(value_take(call->rpc, &call->answer, call->device, &value));
    pthread_mutex_lock(&call->rpc->lock);
    struct owner *o = owner_find(call->rpc, m->makes);
    o->value = value;
    o->object = call->object;
    o->destroy = call->destroy;
    o->device = call->device;
    pthread_mutex_unlock(&call->rpc->lock);
    call->object = NULL;
    owner_ready(call->rpc, m->makes, OK);
    return OK;
}

static int run_function(duet_rpc_call *call, struct message *m) {
    int code = value_make(&m->value, call->device);
    call->args = m->value;
    m->value = duet_rpc_none();
    if (!code) {
        fail(OK, "%s", ""); /* the thread may have the text of an earlier call */
        code = call->run(call, call->context_of_run);
        if (code && !*error_message()) fail(code, "it returned %d, and has not said why", code);
    }
    if (code < OK || code > ERR_PEER) code = fail(ERR_FAILED, "it returned %d", code);
    if (call->failed.code) code = failures_end(&call->failed); /* it may have gone on regardless */
    if (!code && m->makes) code = keep_result(call, m);
    if (!code && call->object)
        code = fail(ERR_USAGE, "it returns an object: call it by duet_remote");
    if (call->object && call->destroy) call->destroy(call->object);
    pass_of_call_ends(call, code);
    duet_rpc_value_free(&call->args);
    return code;
}

/* Finds all that the call needs, and runs it on its device. */
static int serve_on_device(duet_rpc_call *call, struct message *m) {
    if (m->self) CHECK(owner_wait(call->rpc, m->self, &call->self));
    if (strncmp(m->text, "duet.", 5))
        CHECK(user_function(call, m));
    else
        own_function(call, m->text);
    duet_device *device = call->device;
    device_take(call->rpc, device);
    const int late = m->timeout && (uint64_t)(now_ns() - m->frame->came) > m->timeout;
    int code = late ? fail(ERR_TIMEOUT, "its caller has given up") : run_function(call, m);
    device_give(call->rpc, device);
    return code;
}

static void send_answer(duet_rpc_call *call, const struct message *m, int code) {
    struct wire_out *w = &call->answer;
    struct message answer = {.kind = MESSAGE_ANSWER, .call = m->call};
    if (!code && !call->makes) code = values_pass_on(call->rpc, w, call->from);
    const struct failures failed = failures_of(code);
    if (code || call->makes || !call->returned) {
        w->bytes = 0;
        w->failed = OK;
        answer.code = (uint64_t)code;
        answer.text = failed.text;
        message_begin(w, &answer);
    }
    struct frame *f = message_end(w); /* without one the caller's deadline will tell */
    pthread_mutex_lock(&call->rpc->lock);
    if (f) send_frame(call->rpc, call->from, f);
    pthread_mutex_unlock(&call->rpc->lock);
    values_done(call->rpc, w);
}

void serve_call(duet_rpc *rpc, struct message *m) {
    duet_rpc_call call = {.rpc = rpc,
                          .from = m->from,
                          .makes = m->makes != 0,
                          .leaves = m->leaves,
                          .id = m->call,
                          .path = m->path,
                          .context = m->entered};
    message_begin(&call.answer, &(struct message){.kind = MESSAGE_ANSWER, .call = m->call});
    int code = m->wrong ? fail(m->wrong, "%s", m->why) : serve_on_device(&call, m);
    if (m->makes && code) owner_ready(rpc, m->makes, code);
    if (m->leaves) owner_ready(rpc, m->leaves, code);
    send_answer(&call, m, code);
}
