/* The functions of this library that other workers call: no program calls them by name, and none
 * of them runs without what it needs of its call. */
#include <stdio.h>
#include <string.h>

#include "rpc/autograd.h"

/* In a context a parameter becomes a var of a pass here, and so may its gradient come back. What a
 * call of the same context has left here has its pass already, and the caller knows it: argument 0
 * then asks for the numbers of its vars. Its device is taken (serve.c). */
int run_to_here(duet_rpc_call *call, void *context) {
    (void)context;
    struct owner *o = call->self;
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
    (void)call, (void)context; /* the value is there: serve has waited for it */
    return OK;
}

/* ---- the end of all ---- */

static int has_come(const duet_rpc *rpc, int rank) {
    return (int)(rpc->came >> rank & 1);
}

/* Who has not come yet. */
static int name_missing(const duet_rpc *rpc) {
    char names[256] = "";
    for (int r = 0; r < rpc->world; r++)
        if (!has_come(rpc, r))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.100s'",
                     names[0] ? ", " : "", rpc->peers[r].name);
    return fail(ERR_TIMEOUT, "shutdown: worker %s did not come in time", names);
}

/* 1: all have come; *code: one cannot come any more, or it has died while it waited. */
static int all_came(const duet_rpc *rpc, int *code) {
    int all = 1;
    for (int r = 0; r < rpc->world; r++)
        all &= has_come(rpc, r);
    int ended = all ? -1 : first_to_end(rpc, rpc->came);
    if (ended >= 0) *code = peer_error(rpc, ended, "shutdown");
    return all;
}

/* At rank 0: until all workers have come, or the caller is about to give up. */
static int run_leave(duet_rpc_call *call, void *context) {
    (void)context;
    duet_rpc *rpc = call->rpc;
    int code = OK;
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    rpc->came |= (uint64_t)1 << call->from;
    rpc->leaving++;
    pthread_cond_broadcast(&rpc->changed);
    pthread_cond_broadcast(&rpc->ended);
    for (int late = 0; !all_came(rpc, &code) && !code && !rpc->stop;) {
        if (rpc->peers[call->from].state != PEER_HERE) /* nobody waits for the answer */
            code = peer_error(rpc, call->from, "shutdown");
        else if (late)
            code = name_missing(rpc);
        if (!late) late = wait_changed(rpc, call->deadline) != OK;
    }
    rpc->leaving--;
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, paused);
    return code;
}

/* ---- what each needs ---- */

enum needs { OF_RANK_0, OF_VALUE, OF_PASS, MAKES_OBJECT, OF_OPTIMIZER };

static const struct own {
    const char *name;
    int (*run)(duet_rpc_call *call, void *context);
    enum needs needs;
} own_functions[] = {{"duet.to_here", run_to_here, OF_VALUE},
                     {"duet.wait", run_wait, OF_VALUE},
                     {"duet.leave", run_leave, OF_RANK_0},
                     {"duet.backward", serve_backward, OF_PASS},
                     {"duet.Optimizer", serve_optimizer, MAKES_OBJECT},
                     {"duet.Optimizer.step", serve_optimizer_step, OF_OPTIMIZER}};

static int has_needs(const duet_rpc_call *call, enum needs needs) {
    switch (needs) {
    case OF_RANK_0: return call->rpc->rank == 0;
    case OF_VALUE: return call->self != NULL;
    case OF_PASS: return call->back != NULL;
    case MAKES_OBJECT: return call->makes;
    case OF_OPTIMIZER: return call->self && is_optimizer(call->self);
    }
    return 0;
}

int own_function(duet_rpc_call *call, const struct message *m) {
    size_t i = 0, count = sizeof own_functions / sizeof *own_functions;
    while (i < count && strcmp(own_functions[i].name, m->text) != 0)
        i++;
    if (i == count || call->makes != (own_functions[i].needs == MAKES_OBJECT) ||
        !has_needs(call, own_functions[i].needs))
        return fail(ERR_USAGE, "the library does not call it like this");
    call->run = own_functions[i].run;
    if (call->run == run_to_here || call->run == serve_optimizer_step)
        call->device = call->self->device;
    return OK;
}
