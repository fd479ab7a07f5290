/* Serves calls to this worker: a thread of the pool makes the arguments, takes the device of the
 * function, runs it and sends the answer. A function's error is returned to the caller as one line;
 * nothing is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

/* ---- functions ---- */

static struct function *find_function(duet_rpc *rpc, const char *name, size_t length) {
    for (int i = 0; i < rpc->function_count; i++) {
        struct function *f = &rpc->functions[i];
        if (!strncmp(f->name, name, length) && !f->name[length]) return f;
    }
    return NULL;
}

static int add_function(duet_rpc *rpc, const struct duet_rpc_function *f) {
    if (!name_is_good(f->name, "_.") || !f->run)
        return fail(ERR_USAGE,
                    "rpc: function '%.140s': give a function, and a name of 1 to %d letters, "
                    "digits, '_' or '.'",
                    f->name ? f->name : "", NAME_BYTES - 1);
    CHECK(user_name_check(f->name));
    if (find_function(rpc, f->name, strlen(f->name)))
        return fail(ERR_USAGE, "rpc: function '%s' is already registered", f->name);
    struct function *new = &rpc->functions[rpc->function_count++];
    *new = (struct function){
        .run = f->run, .context = f->context, .device = f->device ? f->device : rpc->device};
    snprintf(new->name, sizeof new->name, "%s", f->name);
    return OK;
}

int add_functions(duet_rpc *rpc, const struct duet_rpc_function *functions, int count) {
    if (count <= 0) return OK;
    rpc->functions = calloc((size_t)count, sizeof *rpc->functions);
    if (!rpc->functions) return fail(ERR_MEMORY, "rpc: out of host memory for functions");
    for (int i = 0; i < count; i++)
        CHECK(add_function(rpc, &functions[i]));
    return OK;
}

/* A method belongs to the class of its object, which only the owner knows. */
static int user_function(duet_rpc_call *call) {
    const struct owner *o = call->self;
    const char *said = call->said->text, *dot = o ? NULL : strrchr(said, '.');
    char name[2 * NAME_BYTES];
    if (o && !o->object) return fail(ERR_USAGE, "the reference is not to an object of a class");
    if (dot && find_function(call->rpc, said, (size_t)(dot - said)))
        return fail(ERR_USAGE, "it is a method: call it by a reference to an object");
    snprintf(name, sizeof name, "%s%s%s", o ? o->type : "", o ? "." : "", said);
    const struct function *f = find_function(call->rpc, name, strlen(name));
    if (!f)
        return fail(ERR_USAGE, "worker '%s' has no function of this name%s%s", call->rpc->name,
                    o ? ": " : "", o ? name : "");
    call->run = f->run;
    call->context_of_run = f->context;
    call->device = f->device;
    return OK;
}

/* ---- the functions of this library that other workers call: no program does so by name;
 * own_function checks what each needs ---- */

/* In a context a parameter becomes a var of a pass here, so that its gradient can come back. */
static int run_to_here(duet_rpc_call *call, void *context) {
    (void)context;
    struct owner *o = call->self;
    duet_tape *t;
    if (o->object)
        return fail(ERR_USAGE,
                    "the reference is to an object of '%s', which cannot be copied: "
                    "call its methods",
                    o->type);
    if (!o->params) return duet_rpc_return(call, o->value);
    if (!call->said->entered)
        return duet_rpc_return(call, duet_rpc_tensor(duet_params_value(o->params, o->param)));
    CHECK(duet_autograd_call_pass(&t, call, o->params, 1));
    return duet_rpc_return(call, duet_rpc_var(pass_parameter(t, o->param)));
}

static int run_wait(duet_rpc_call *call, void *context) {
    (void)call, (void)context; /* the value exists: serve has waited for it */
    return OK;
}

static int own_function(duet_rpc_call *call) {
    const struct message *m = call->said;
    const struct owner *o = leaves_value(m) ? NULL : call->self;
    const struct {
        const char *name;
        int (*run)(duet_rpc_call *call, void *context);
        int fits; /* 1: the call has the right arguments */
    } own[] = {{"duet.to_here", run_to_here, o != NULL},
               {"duet.wait", run_wait, o != NULL},
               {"duet.backward", serve_backward, o && o->pass},
               {"duet.Optimizer.step", serve_optimizer_step, o && is_optimizer(o)},
               {"duet.Optimizer", serve_optimizer, leaves_value(m)}};
    size_t i = 0;
    while (i < sizeof own / sizeof *own && (!own[i].fits || strcmp(own[i].name, m->text)))
        i++;
    if (i == sizeof own / sizeof *own)
        return fail(ERR_USAGE, "only the library calls it, and not like this");
    call->run = own[i].run;
    if (o && call->run != run_wait) call->device = o->device;
    return OK;
}

/* ---- one call ---- */

/* The function's result becomes the value of the reference. */
static int keep_result(duet_rpc_call *call) {
    const uint64_t made = call->said->made;
    struct duet_rpc_value value = duet_rpc_none();
    if (call->returned && !call->object)
        CHECK(value_take(call->rpc, &call->answer, call->device, &value));
    pthread_mutex_lock(&call->rpc->lock);
    struct owner *o = owner_find(call->rpc, made);
    o->value = value;
    o->object = call->object;
    o->destroy = call->destroy;
    o->device = call->device;
    pthread_mutex_unlock(&call->rpc->lock);
    call->object = NULL;
    return OK;
}

/* Keeps or frees the pass of a call whose function has ended. */
static void pass_of_call_ends(duet_rpc_call *call, int code) {
    struct autograd *p = call->pass;
    if (!p) return;
    call->pass = NULL;
    if (code || !call->said->made || !p->returned.count) {
        pass_free(p);
        return;
    }
    pthread_mutex_lock(&call->rpc->lock);
    rrefs_drop(&call->said->value);
    p->args = call->said->value;
    call->said->value = duet_rpc_none();
    struct owner *o = owner_find(call->rpc, call->said->made);
    o->pass = p;
    o->device = p->device;
    pthread_mutex_unlock(&call->rpc->lock);
}

static int run_function(duet_rpc_call *call) {
    struct message *m = call->said;
    int code = value_make(&m->value, call->device);
    if (!code) {
        fail(OK, "%s", ""); /* the thread may still have the message of an earlier call */
        code = call->run(call, call->context_of_run);
        if (code && !*error_message()) fail(code, "it returned %d without an error message", code);
    }
    if (code < OK || code > ERR_PEER) code = fail(ERR_FAILED, "it returned %d", code);
    if (call->failed.code)
        code = failures_end(&call->failed); /* the function may have ignored it */
    if (!code && leaves_value(m)) code = keep_result(call);
    if (!code && call->object)
        code = fail(ERR_USAGE, "it returns an object: call it with duet_remote");
    if (call->object && call->destroy) call->destroy(call->object);
    pass_of_call_ends(call, code);
    duet_rpc_value_free(&m->value);
    return code;
}

/* Finds everything that the call needs, and runs it on its device. */
static int serve_on_device(duet_rpc_call *call) {
    const struct message *m = call->said;
    if (m->self) CHECK(owner_wait(call->rpc, m->self, &call->self));
    CHECK(strncmp(m->text, "duet.", 5) ? user_function(call) : own_function(call));
    duet_device *device = call->device;
    device_take(call->rpc, device);
    int code = run_function(call);
    device_give(call->rpc, device);
    return code;
}

static void send_answer(duet_rpc_call *call, int code) {
    const struct message *m = call->said;
    struct wire_out *w = &call->answer;
    struct message answer = {.kind = MESSAGE_ANSWER, .call = m->call};
    if (!code && !leaves_value(m))
        code = values_pass_on(call->rpc, w, m->from, now_ns() + call->rpc->timeout_ns);
    const struct failures failed = failures_of(code);
    if (code || leaves_value(m) || !call->returned) {
        w->bytes = 0;
        w->failed = OK;
        answer.code = (uint64_t)code;
        answer.text = failed.text;
        message_begin(w, &answer);
    }
    struct frame *f = message_end(w); /* without a frame the caller's deadline ends the call */
    pthread_mutex_lock(&call->rpc->lock);
    if (f) send_frame(call->rpc, m->from, f);
    pthread_mutex_unlock(&call->rpc->lock);
    values_done(call->rpc, w);
}

void serve_call(duet_rpc *rpc, struct message *m) {
    duet_rpc_call call = {.rpc = rpc, .said = m};
    message_begin(&call.answer, &(struct message){.kind = MESSAGE_ANSWER, .call = m->call});
    int code = m->wrong ? fail(m->wrong, "%s", m->why) : serve_on_device(&call);
    if (m->made) owner_ready(rpc, m->made, code);
    send_answer(&call, code);
}
