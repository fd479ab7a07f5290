/* Writing and reading values: see wire.h. */
#include "rpc/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rpc/message.h"

enum { ALIGN = 64 };

/* ---- writing ---- */

/* At least half is added, so that a message of many parts is not copied for each of them; what is
 * missing may be more, as for a tensor, and then not twice of it. */
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
    if (w->failed == ERR_MEMORY) return fail(ERR_MEMORY, "rpc: no host memory for a message");
    return w->failed ? fail(ERR_USAGE, "rpc: values of more than %llu bytes do not go in a message",
                            (unsigned long long)MESSAGE_MOST_BYTES)
                     : OK;
}

void wire_put(struct wire_out *w, const void *data, size_t bytes) {
    if (!bytes || !make_room(w, bytes)) return;
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

void wire_put_u8(struct wire_out *w, unsigned value) {
    uint8_t byte = (uint8_t)value;
    wire_put(w, &byte, 1);
}

void wire_put_u32(struct wire_out *w, uint32_t value) {
    wire_put(w, &value, sizeof value);
}

void wire_put_u64(struct wire_out *w, uint64_t value) {
    wire_put(w, &value, sizeof value);
}

void wire_put_text(struct wire_out *w, const char *text) {
    size_t bytes = strlen(text) + 1;
    wire_put_u64(w, bytes);
    wire_put(w, text, bytes);
}

static size_t pad_at(size_t at) {
    return (ALIGN - at % ALIGN) % ALIGN;
}

void *wire_put_elements(struct wire_out *w, size_t bytes) {
    size_t pad = pad_at(w->bytes);
    if (!make_room(w, pad + bytes)) return NULL;
    memset(w->data + w->bytes, 0, pad);
    void *room = w->data + w->bytes + pad;
    w->bytes += pad + bytes;
    return room;
}

void wire_drop(struct wire_out *w) {
    free(w->data);
    w->data = NULL;
}

/* ---- reading ---- */

static int broken_value(void) {
    return fail(ERR_FAILED, "rpc: a message ends early or makes no sense");
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

size_t wire_type_bytes(enum duet_type type) {
    static const size_t bytes[] = {[DUET_F32] = 4,  [DUET_I32] = 4, [DUET_F64] = 8, [DUET_F16] = 2,
                                   [DUET_BF16] = 2, [DUET_I64] = 8, [DUET_U8] = 1};
    return (unsigned)type <= DUET_U8 ? bytes[type] : 0;
}

const char *wire_type_name(enum duet_rpc_type type) {
    static const char *const names[] = {"nothing",  "an integer",  "a number", "a text", "bytes",
                                        "a tensor", "a reference", "a list",   "a var"};
    return (unsigned)type <= DUET_RPC_VAR ? names[type] : "no value";
}

/* Elements that begin at the next multiple of 64. */
static int get_elements(struct wire_in *w, size_t bytes, const void **out) {
    size_t pad = pad_at(w->at), left = w->bytes - w->at;
    if (left < pad || left - pad < bytes) return broken_value();
    *out = w->data + w->at + pad;
    w->at += pad + bytes;
    return OK;
}

static int read_tensor(struct wire_in *w, struct wire_value *v) {
    uint8_t type = 0, rank = 0, number = 0;
    uint64_t count = 1;
    if (v->type == DUET_RPC_VAR) CHECK(wire_get(w, &number, 1));
    if (number >= MOST_VARS) return broken_value();
    v->tensor.number = number;
    CHECK(wire_get(w, &type, 1));
    CHECK(wire_get(w, &rank, 1));
    if (type > DUET_U8 || rank < 1 || rank > DUET_MAX_RANK) return broken_value();
    v->tensor.type = (enum duet_type)type;
    v->tensor.rank = rank;
    for (int i = 0; i < rank; i++) {
        CHECK(wire_get(w, &v->tensor.shape[i], sizeof v->tensor.shape[i]));
        if (v->tensor.shape[i] < (i ? 1 : 0)) return broken_value();
        count *= (uint64_t)v->tensor.shape[i];
        if (count > INT32_MAX) return broken_value();
    }
    size_t bytes = count * wire_type_bytes(v->tensor.type);
    return get_elements(w, bytes, &v->tensor.data);
}

static int read_rref(struct wire_in *w, struct wire_value *v) {
    uint16_t owner = 0;
    CHECK(wire_get(w, &owner, sizeof owner));
    CHECK(wire_get(w, &v->rref.id, sizeof v->rref.id));
    v->rref.owner = owner;
    CHECK(wire_get_text(w, &v->rref.type));
    int known =
        owner < w->world && id_worker(v->rref.id) < w->world && strlen(v->rref.type) < NAME_BYTES;
    return known ? OK : broken_value();
}

static int read_value(struct wire_in *w, struct wire_value *v, int depth);

static int read_list(struct wire_in *w, struct wire_value *v, int depth) {
    uint32_t count = 0;
    CHECK(wire_get(w, &count, sizeof count));
    /* Each item takes at least a byte: a count that cannot be is not believed. Arguments are a list
     * themselves. */
    if (count > w->bytes - w->at || depth > DEEPEST_LIST) return broken_value();
    v->items = calloc((size_t)count + 1, sizeof *v->items);
    if (!v->items) return fail(ERR_MEMORY, "rpc: no host memory for a list of %u", count);
    for (uint32_t i = 0; i < count; i++) {
        v->count = (int)i + 1;
        CHECK(read_value(w, &v->items[i], depth + 1));
    }
    return OK;
}

static int read_value(struct wire_in *w, struct wire_value *v, int depth) {
    uint8_t type = 0;
    memset(v, 0, sizeof *v);
    CHECK(wire_get(w, &type, 1));
    v->type = (enum duet_rpc_type)type;
    switch (v->type) {
    case DUET_RPC_NONE: return OK;
    case DUET_RPC_INT:
    case DUET_RPC_NUMBER: return wire_get(w, &v->integer, sizeof v->integer);
    case DUET_RPC_TEXT: CHECK(wire_get_text(w, &v->text.data)); return OK;
    case DUET_RPC_BYTES: return get_bytes(w, &v->text.data, &v->text.bytes);
    case DUET_RPC_TENSOR:
    case DUET_RPC_VAR: return read_tensor(w, v);
    case DUET_RPC_RREF: return read_rref(w, v);
    case DUET_RPC_LIST: return read_list(w, v, depth);
    default: v->type = DUET_RPC_NONE; return broken_value();
    }
}

int wire_read(struct wire_in *w, struct wire_value *out) {
    int code = read_value(w, out, 0);
    if (code) wire_value_free(out);
    return code;
}

void wire_value_free(struct wire_value *v) {
    if (v->type == DUET_RPC_LIST && v->items) {
        for (int i = 0; i < v->count; i++)
            wire_value_free(&v->items[i]);
        free(v->items);
    }
    memset(v, 0, sizeof *v);
}
