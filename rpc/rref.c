/* The program's references: makes them, passes them on, fetches their values, and calls methods
 * through proxies. lifetime.h decides how long a value lives. */
#include <string.h>

#include "rpc/agent.h"

/* ---- references to local values ---- */

static int new_owner(duet_rref **out, duet_rpc *rpc, const char *type, struct owner **owner) {
    CHECK_OUT(out);
    if (!rpc) return fail(ERR_USAGE, "rpc: rref: no worker was given");
    if (strlen(type) >= NAME_BYTES)
        return fail(ERR_USAGE, "rpc: rref: type '%.40s'...: too long", type);
    CHECK(user_name_check(type));
    pthread_mutex_lock(&rpc->lock);
    uint64_t id = new_id(rpc);
    *owner = owner_new(rpc, id, type);
    *out = *owner ? rref_new(rpc, id, rpc->rank) : NULL;
    pthread_mutex_unlock(&rpc->lock);
    return *out ? OK : fail(ERR_MEMORY, "rpc: out of host memory for a reference");
}

int duet_rref_create(duet_rref **out, duet_rpc *rpc, struct duet_rpc_value value) {
    struct owner *o;
    struct wire_out w = {0};
    CHECK(new_owner(out, rpc, "", &o));
    int code = value_write(rpc, &w, &value, 0);
    if (!code) code = wire_error(&w);
    if (!code) code = value_take(rpc, &w, rpc->device, &o->value);
    values_done(rpc, &w);
    o->device = rpc->device;
    if (code) {
        duet_rref_free(*out);
        *out = NULL;
        return code;
    }
    owner_ready(rpc, (*out)->id, OK);
    return OK;
}

int duet_rref_create_object(duet_rref **out, duet_rpc *rpc, const char *type, void *object,
                            void (*destroy)(void *object)) {
    struct owner *o;
    CHECK(new_owner(out, rpc, type ? type : "", &o));
    o->object = object;
    o->destroy = destroy;
    o->device = rpc->device;
    owner_ready(rpc, (*out)->id, OK);
    return OK;
}

int duet_rref_create_param(duet_rref **out, duet_rpc *rpc, duet_params *params, int i) {
    struct owner *o;
    if (!duet_params_value(params, i))
        return fail(ERR_USAGE, "rpc: rref: parameter %d does not exist", i);
    CHECK(new_owner(out, rpc, "", &o));
    o->params = params;
    o->param = i;
    o->device = duet_tensor_device(duet_params_value(params, i));
    owner_ready(rpc, (*out)->id, OK);
    return OK;
}

int duet_rref_owner(const duet_rref *r) {
    return r ? r->owner : -1;
}

/* ---- the value ---- */

static int local_owner(duet_rref *r, const char *what, struct owner **o) {
    if (!r) return fail(ERR_USAGE, "rpc: %s: no reference was given", what);
    if (r->owner != r->rpc->rank)
        return fail(ERR_USAGE, "rpc: %s on worker '%s': the owner is '%s': use duet_rref_to_here",
                    what, r->rpc->name, r->rpc->peers[r->owner].name);
    return owner_wait(r->rpc, r->id, o);
}

int duet_rref_local_value(duet_rref *r, const struct duet_rpc_value **value) {
    struct owner *o;
    if (!value) return fail(ERR_USAGE, "rpc: local_value: no output was given");
    CHECK(local_owner(r, "local_value", &o));
    *value = &o->value;
    return OK;
}

static int call_owner(duet_rref *r, const char *function, double timeout_s,
                      struct duet_rpc_value *result) {
    struct outgoing o;
    duet_future *f;
    CHECK(to_owner(&o, r, function, timeout_s));
    int code = call_begin(&f, r->rpc, &o);
    return call_finish(f, code, result);
}

int duet_rref_to_here(duet_rref *r, double timeout_s, struct duet_rpc_value *value) {
    if (value) *value = duet_rpc_none();
    if (!r || !value)
        return fail(ERR_USAGE, "rpc: to_here: no %s was given", r ? "place" : "reference");
    return call_owner(r, "duet.to_here", timeout_s, value);
}

int duet_rref_wait(duet_rref *r, double timeout_s) {
    if (!r) return fail(ERR_USAGE, "rpc: wait: no reference was given");
    return call_owner(r, "duet.wait", timeout_s, NULL);
}

/* ---- remote, and the proxies ---- */

int rref_remote(duet_rref **out, duet_rpc *rpc, struct outgoing *o) {
    duet_future *created;
    o->leaves = out;
    CHECK(call_begin(&created, rpc, o));
    (*out)->created = created;
    return OK;
}

int duet_remote(duet_rref **out, duet_rpc *rpc, const char *to, const char *function,
                const struct duet_rpc_value *args, int count, double timeout_s) {
    struct outgoing o;
    CHECK_OUT(out);
    CHECK(check_call(&o, rpc, to, function, args, count, timeout_s));
    return rref_remote(out, rpc, &o);
}

int duet_rref_sync(duet_rref *r, const char *method, const struct duet_rpc_value *args, int count,
                   double timeout_s, struct duet_rpc_value *result) {
    duet_future *f;
    int code = duet_rref_async(&f, r, method, args, count, timeout_s);
    return call_finish(f, code, result);
}

int duet_rref_async(duet_future **out, duet_rref *r, const char *method,
                    const struct duet_rpc_value *args, int count, double timeout_s) {
    struct outgoing o;
    CHECK_OUT(out);
    CHECK(method_of(&o, r, method, args, count, timeout_s));
    return call_begin(out, r->rpc, &o);
}
