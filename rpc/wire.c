/* Writes and reads values: see wire.h. */
#include "rpc/wire.h"

#include <stdlib.h>
#include <string.h>

#include "device/tensor.h"
#include "rpc/agent.h"

/* ---- writing ---- */

/* Grows by at least half, so that many parts do not copy a message each time; or only by what is
 * missing, and a little, if that is more, as for a tensor. */
static int make_room(struct wire_out *w, size_t bytes) {
    if (bytes > MESSAGE_MOST_BYTES - w->bytes) w->failed = ERR_USAGE;
    if (w->failed) return 0;
    if (w->room - w->bytes >= bytes) return 1;
    size_t room = w->room + w->room / 2, wanted = w->bytes + bytes + 256;
    if (room < wanted) room = wanted;
    uint8_t *data = realloc(w->data, room);
    if (!data) {
        w->failed = ERR_MEMORY;
        return 0;
    }
    w->data = data;
    w->room = room;
    return 1;
}

int wire_error(const struct wire_out *w) {
    if (w->failed == ERR_MEMORY) return fail(ERR_MEMORY, "rpc: out of host memory for a message");
    return w->failed ? fail(ERR_USAGE, "rpc: a message has at most %llu bytes: send less",
                            (unsigned long long)MESSAGE_MOST_BYTES)
                     : OK;
}

void wire_put(struct wire_out *w, const void *data, size_t bytes) {
    if (!bytes || !make_room(w, bytes)) return;
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

void wire_put_text(struct wire_out *w, const char *text) {
    size_t bytes = strlen(text) + 1;
    wire_put_as(w, uint64_t, bytes);
    wire_put(w, text, bytes);
}

void *wire_put_room(struct wire_out *w, size_t bytes) {
    if (!make_room(w, bytes)) return NULL;
    w->bytes += bytes;
    return w->data + w->bytes - bytes;
}

/* ---- reading ---- */

static int broken_value(void) {
    return fail(ERR_FAILED, "rpc: a message is truncated or malformed");
}

int wire_get(struct wire_in *w, void *out, size_t bytes) {
    if (w->bytes - w->at < bytes) return broken_value();
    memcpy(out, w->data + w->at, bytes);
    w->at += bytes;
    return OK;
}

static int get_bytes(struct wire_in *w, const char **data, size_t *bytes) {
    uint64_t length = 0;
    CHECK(wire_get(w, &length, sizeof length));
    if (length > w->bytes - w->at) return broken_value();
    *data = (const char *)w->data + w->at;
    *bytes = length;
    w->at += length;
    return OK;
}

int wire_get_text(struct wire_in *w, const char **out) {
    size_t bytes;
    CHECK(get_bytes(w, out, &bytes));
    return bytes && memchr(*out, 0, bytes) == *out + bytes - 1 ? OK : broken_value();
}

const char *wire_type_name(enum duet_rpc_type type) {
    static const char *const names[] = {"nothing",  "an integer",  "a number", "a string", "bytes",
                                        "a tensor", "a reference", "a list",   "a var"};
    return (unsigned)type <= DUET_RPC_VAR ? names[type] : "no value";
}

static int read_tensor(struct wire_in *w, struct duet_rpc_value *v) {
    struct wire_tensor t;
    uint64_t count = 1;
    v->data = w->data + w->at;
    CHECK(wire_get(w, &t, sizeof t));
    if (t.type > DUET_U8 || t.rank < 1 || t.rank > DUET_MAX_RANK || t.number > MOST_VARS)
        return broken_value();
    for (int i = 0; i < t.rank; i++) {
        if (t.shape[i] < (i ? 1 : 0)) return broken_value();
        count *= (uint64_t)t.shape[i];
        if (count > INT32_MAX) return broken_value();
    }
    size_t bytes = count * dtype_bytes((enum dtype)t.type);
    if (w->bytes - w->at < bytes) return broken_value();
    w->at += bytes;
    v->type = (enum duet_rpc_type)COMES_TENSOR;
    return OK;
}

static int read_rref(struct wire_in *w, struct duet_rpc_value *v) {
    struct wire_rref r;
    CHECK(wire_get(w, &r, sizeof r));
    if (r.owner >= (uint64_t)w->rpc->world || id_worker(r.id) >= w->rpc->world)
        return broken_value();
    *v = duet_rpc_rref(rref_arrives(w->rpc, r.id, (int)r.owner));
    return v->rref ? OK : fail(ERR_MEMORY, "rpc: out of host memory for a reference");
}

static int read_copy(struct wire_in *w, struct duet_rpc_value *v, enum duet_rpc_type type) {
    const char *data;
    size_t bytes;
    if (type == DUET_RPC_TEXT)
        CHECK(wire_get_text(w, &data));
    else
        CHECK(get_bytes(w, &data, &bytes));
    if (type == DUET_RPC_TEXT) bytes = strlen(data);
    char *copy = malloc(bytes + 1);
    if (!copy) return fail(ERR_MEMORY, "rpc: out of host memory for %zu bytes", bytes);
    memcpy(copy, data, bytes);
    copy[bytes] = 0;
    v->type = type;
    v->data = copy;
    v->bytes = type == DUET_RPC_BYTES ? bytes : 0;
    return OK;
}

static int read_value(struct wire_in *w, struct duet_rpc_value *v, int depth);

static int read_list(struct wire_in *w, struct duet_rpc_value *v, int depth) {
    uint32_t count = 0;
    CHECK(wire_get(w, &count, sizeof count));
    /* Each item takes at least a byte, so impossible counts are refused. The arguments are
     * themselves a list. */
    if (count > w->bytes - w->at || depth > DEEPEST_LIST) return broken_value();
    struct duet_rpc_value *items = calloc((size_t)count + 1, sizeof *items);
    if (!items) return fail(ERR_MEMORY, "rpc: out of host memory for a list of %u", count);
    *v = duet_rpc_list(items, 0);
    for (uint32_t i = 0; i < count; i++) {
        v->count = (int)i + 1;
        CHECK(read_value(w, &items[i], depth + 1));
    }
    return OK;
}

static int read_value(struct wire_in *w, struct duet_rpc_value *v, int depth) {
    uint8_t type = 0;
    CHECK(wire_get(w, &type, 1));
    switch (type) {
    case DUET_RPC_NONE: return OK;
    case DUET_RPC_INT:
    case DUET_RPC_NUMBER:
        v->type = (enum duet_rpc_type)type;
        return wire_get(w, &v->integer, sizeof v->integer);
    case DUET_RPC_TEXT:
    case DUET_RPC_BYTES: return read_copy(w, v, (enum duet_rpc_type)type);
    case DUET_RPC_TENSOR: return read_tensor(w, v);
    case DUET_RPC_RREF: return read_rref(w, v);
    case DUET_RPC_LIST: return read_list(w, v, depth);
    default: return broken_value();
    }
}

int wire_read(struct wire_in *w, struct duet_rpc_value *out) {
    *out = duet_rpc_none();
    return read_value(w, out, 0);
}
