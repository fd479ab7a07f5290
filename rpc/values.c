/* Converts values of the program to bytes, and bytes to values. Tensors are read from their device
 * and made on one; references are passed on and received (refcount.c). */
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

/* ---- writing ---- */

/* number: of a var, from 1; 0: it is not a var. */
static int write_tensor(struct wire_out *w, const duet_tensor *t, int number) {
    if (!t) return fail(ERR_USAGE, "rpc: a tensor is NULL");
    struct wire_tensor head = {.type = (uint8_t)duet_tensor_type(t),
                               .rank = (uint8_t)duet_tensor_rank(t),
                               .number = (uint8_t)number};
    for (int i = 0; i < head.rank; i++)
        head.shape[i] = duet_tensor_dim(t, i);
    wire_put_as(w, uint8_t, DUET_RPC_TENSOR);
    wire_put(w, &head, sizeof head);
    size_t bytes = tensor_bytes(&t->t);
    void *room = wire_put_room(w, bytes);
    if (!room) return wire_error(w);
    return bytes ? duet_tensor_read(t, room) : OK;
}

/* A var whose gradient is not needed travels as a tensor. */
static int write_var(struct wire_out *w, duet_var *x) {
    struct var_list *l = w->vars;
    if (!l)
        return fail(ERR_USAGE,
                    "rpc: a var: only duet_autograd_sync and similar functions, and functions "
                    "with a duet_autograd_call_pass, send vars");
    CHECK(duet_tape_error(l->tape));
    if (!x) return fail(ERR_USAGE, "rpc: a var is NULL");
    for (int i = 0; i < l->count; i++) /* each var has its own gradient */
        if (l->var[i] == x) x = duet_multiply_number(l->tape, x, 1);
    x = to_plain(l->tape, x);
    CHECK(duet_tape_error(l->tape));
    if (x->value.dtype != DTYPE_F32)
        return fail(ERR_USAGE, "rpc: a var that is not float, such as a loss, cannot be sent");
    const struct duet_tensor t = {.device = l->tape->device, .t = x->value, .borrowed = 1};
    if (!l->records || !x->needs_grad) return write_tensor(w, &t, 0);
    if (l->count == MOST_VARS)
        return fail(ERR_USAGE, "rpc: more than %d vars in a message", MOST_VARS);
    l->var[l->count++] = x;
    return write_tensor(w, &t, l->count);
}

/* It is held until it has been passed on. */
static int write_rref(duet_rpc *rpc, struct wire_out *w, duet_rref *r) {
    if (!r) return fail(ERR_USAGE, "rpc: a reference is NULL");
    if (r->rpc != rpc) return fail(ERR_USAGE, "rpc: a reference of another worker of this program");
    duet_rref **passed = realloc(w->passed, (size_t)(w->passed_count + 1) * sizeof *passed);
    if (!passed) return fail(ERR_MEMORY, "rpc: out of host memory for a reference");
    w->passed = passed;
    passed[w->passed_count++] = r;
    pthread_mutex_lock(&rpc->lock);
    r->refs++;
    pthread_mutex_unlock(&rpc->lock);
    const struct wire_rref wire = {r->id, (uint64_t)r->owner};
    wire_put_as(w, uint8_t, DUET_RPC_RREF);
    wire_put(w, &wire, sizeof wire);
    return OK;
}

/* A list that holds itself ends the walk at the depth that is read. */
static int check_list(const struct duet_rpc_value *v, int depth) {
    if (v->count < 0 || v->count > MOST_VALUES || (v->count && !v->items))
        return fail(ERR_USAGE, "rpc: a list of %d items: give 0 to %d, and their address", v->count,
                    MOST_VALUES);
    if (depth < DEEPEST_LIST) return OK;
    return fail(ERR_USAGE,
                "rpc: lists nested more than %d deep: does one contain itself? give flatter ones",
                DEEPEST_LIST);
}

int value_write(duet_rpc *rpc, struct wire_out *w, const struct duet_rpc_value *v, int depth) {
    switch (v->type) {
    case DUET_RPC_TENSOR: return write_tensor(w, v->tensor, 0);
    case DUET_RPC_VAR: return write_var(w, v->var);
    case DUET_RPC_RREF: return write_rref(rpc, w, v->rref);
    default: break;
    }
    wire_put_as(w, uint8_t, (unsigned)v->type);
    switch (v->type) {
    case DUET_RPC_NONE: return OK;
    case DUET_RPC_INT:
    case DUET_RPC_NUMBER: wire_put(w, &v->integer, sizeof v->integer); return OK;
    case DUET_RPC_TEXT:
        if (!v->text) return fail(ERR_USAGE, "rpc: a string is NULL");
        wire_put_text(w, v->text);
        return OK;
    case DUET_RPC_BYTES:
        if (v->bytes && !v->data) return fail(ERR_USAGE, "rpc: %zu bytes at NULL", v->bytes);
        wire_put_as(w, uint64_t, v->bytes);
        wire_put(w, v->data, v->bytes);
        return OK;
    case DUET_RPC_LIST:
        CHECK(check_list(v, depth));
        wire_put_as(w, uint32_t, (uint32_t)v->count);
        for (int i = 0; i < v->count; i++)
            CHECK(value_write(rpc, w, &v->items[i], depth + 1));
        return OK;
    default: return fail(ERR_USAGE, "rpc: value type %d does not exist", (int)v->type);
    }
}

void values_done(duet_rpc *rpc, struct wire_out *w) {
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < w->passed_count; i++)
        rref_drop(w->passed[i]);
    pthread_mutex_unlock(&rpc->lock);
    free(w->passed);
    free(w->data);
}

/* ---- making ---- */

/* The `count` of a tensor is its number as a var, from 1; 0: it was none. */
static int make_tensor(struct duet_rpc_value *v, duet_device *device) {
    struct wire_tensor head;
    const char *elements = (const char *)v->data + sizeof head;
    if (!device)
        return fail(ERR_USAGE, "rpc: received a tensor, but no device is set: give one in "
                               "the options of duet_rpc_init, or with the function");
    memcpy(&head, v->data, sizeof head);
    *v = duet_rpc_tensor(NULL);
    v->count = head.number;
    return duet_tensor_create(&v->tensor, device, (enum duet_type)head.type, head.rank, head.shape,
                              elements);
}

int value_make(struct duet_rpc_value *v, duet_device *device) {
    for (int i = 0; v->type == DUET_RPC_LIST && i < v->count; i++)
        CHECK(value_make((struct duet_rpc_value *)&v->items[i], device));
    return (int)v->type == COMES_TENSOR ? make_tensor(v, device) : OK;
}

int value_take(duet_rpc *rpc, const struct wire_out *w, duet_device *device,
               struct duet_rpc_value *out) {
    struct wire_in in = {rpc, w->data, w->bytes, w->value_at};
    *out = duet_rpc_none();
    CHECK(values_pass_on(rpc, w, rpc->rank, now_ns() + rpc->timeout_ns));
    pthread_mutex_lock(&rpc->lock);
    int code = wire_read(&in, out);
    pthread_mutex_unlock(&rpc->lock);
    if (!code) code = value_make(out, device);
    if (code) duet_rpc_value_free(out);
    return code;
}
