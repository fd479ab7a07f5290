/* A call as its function sees it: its arguments, each with a check, and its result. */
#include "rpc/agent.h"

int duet_rpc_call_error(duet_rpc_call *call) {
    return call ? failures_end(&call->failed) : fail(ERR_USAGE, "rpc: the call is NULL");
}

int duet_rpc_arg_count(const duet_rpc_call *call) {
    return call ? call->said->value.count : 0;
}

const struct duet_rpc_value *duet_rpc_arg(duet_rpc_call *call, int i) {
    if (!call) return NULL;
    const struct duet_rpc_value *args = &call->said->value;
    if (i >= 0 && i < args->count) return &args->items[i];
    failures_first(&call->failed,
                   fail(ERR_USAGE, "argument %d is missing: the call has %d", i, args->count));
    return NULL;
}

static const struct duet_rpc_value *typed_arg(duet_rpc_call *call, int i, enum duet_rpc_type type) {
    const struct duet_rpc_value *v = duet_rpc_arg(call, i);
    if (!v || v->type == type || (type == DUET_RPC_NUMBER && v->type == DUET_RPC_INT)) return v;
    failures_first(&call->failed, fail(ERR_USAGE, "argument %d is %s: it must be %s", i,
                                       wire_type_name(v->type), wire_type_name(type)));
    return NULL;
}

int64_t duet_rpc_arg_int(duet_rpc_call *call, int i) {
    const struct duet_rpc_value *v = typed_arg(call, i, DUET_RPC_INT);
    return v ? v->integer : 0;
}

double duet_rpc_arg_number(duet_rpc_call *call, int i) {
    const struct duet_rpc_value *v = typed_arg(call, i, DUET_RPC_NUMBER);
    return !v ? 0 : v->type == DUET_RPC_INT ? (double)v->integer : v->number;
}

const char *duet_rpc_arg_text(duet_rpc_call *call, int i) {
    const struct duet_rpc_value *v = typed_arg(call, i, DUET_RPC_TEXT);
    return v ? v->text : NULL;
}

duet_tensor *duet_rpc_arg_tensor(duet_rpc_call *call, int i) {
    const struct duet_rpc_value *v = typed_arg(call, i, DUET_RPC_TENSOR);
    return v ? v->tensor : NULL;
}

duet_rref *duet_rpc_arg_rref(duet_rpc_call *call, int i) {
    const struct duet_rpc_value *v = typed_arg(call, i, DUET_RPC_RREF);
    return v ? v->rref : NULL;
}

void *duet_rpc_self(duet_rpc_call *call) {
    return call && call->self ? call->self->object : NULL;
}

duet_rpc *duet_rpc_of_call(duet_rpc_call *call) {
    return call ? call->rpc : NULL;
}

static int return_once(duet_rpc_call *call) {
    if (call->returned)
        return failures_first(&call->failed, fail(ERR_USAGE, "it returns twice: return only once"));
    call->returned = 1;
    return OK;
}

int duet_rpc_return(duet_rpc_call *call, struct duet_rpc_value value) {
    if (!call) return fail(ERR_USAGE, "rpc: return: no call was given");
    CHECK(duet_rpc_call_error(call));
    CHECK(return_once(call));
    CHECK(failures_first(&call->failed, value_write(call->rpc, &call->answer, &value, 0)));
    return failures_first(&call->failed, wire_error(&call->answer));
}

int duet_rpc_return_object(duet_rpc_call *call, void *object, void (*destroy)(void *object)) {
    if (!call || !object)
        return fail(ERR_USAGE, "rpc: return: no %s was given", call ? "object" : "call");
    CHECK(return_once(call));
    call->object = object;
    call->destroy = destroy;
    return duet_rpc_call_error(call);
}
