/* The functions of this library that other workers call: No program calls them by name, and each
 * first checks that its call has what it needs. */
#include <string.h>

#include "rpc/autograd.h"

/* In a context a parameter becomes a var of a pass here, and so may its gradient come back. What a
 * call of the same context has left here has its pass already, and the caller knows it: argument 0
 * then asks for the numbers of its vars. Its device is taken (serve.c). */
static int run_to_here(duet_rpc_call *call, void *context) {
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

/* ---- how they are found ---- */

static int no_call(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    return fail(ERR_USAGE, "the library does not call it like this");
}

static int (*find_own(const duet_rpc_call *call, const char *name))(duet_rpc_call *, void *) {
    const struct {
        const char *name;
        int (*run)(duet_rpc_call *call, void *context);
        int fits; /* 1: the call has what it needs */
    } own[] = {{"duet.to_here", run_to_here, call->self && !call->makes},
               {"duet.wait", run_wait, call->self && !call->makes},
               {"duet.backward", serve_backward, call->self && call->self->pass && !call->makes},
               {"duet.Optimizer", serve_optimizer, call->makes},
               {"duet.Optimizer.step", serve_optimizer_step,
                call->self && is_optimizer(call->self) && !call->makes}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].fits && !strcmp(own[i].name, name)) return own[i].run;
    return no_call;
}

void own_function(duet_rpc_call *call, const char *name) {
    call->run = find_own(call, name);
    if (call->run != no_call && call->run != run_wait && call->self)
        call->device = call->self->device;
}
