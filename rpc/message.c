/* Messages are written, read and checked by one table: see message.h. */
#include "rpc/message.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/lifetime.h"

/* ---- the table ---- */

enum field {
    NO_FIELD,
    CALL,
    TIMEOUT,
    CODE,
    SELF,
    MAKES,
    RREF,
    WORKER,
    CONTEXT,
    PASS,
    TEXT,
    PATH,
    VALUE
};

static const struct {
    const char *name;
    uint8_t field[10];
} kinds[MESSAGE_KINDS] = {
    [MESSAGE_CALL] = {"a call", {CALL, TIMEOUT, SELF, MAKES, CONTEXT, PASS, TEXT, PATH, VALUE}},
    [MESSAGE_ANSWER] = {"an answer", {CALL, CODE, TEXT, VALUE}},
    [MESSAGE_HOLD] = {"a hold", {RREF, WORKER}},
    [MESSAGE_HELD] = {"what confirms a hold", {RREF}},
    [MESSAGE_DROP] = {"the end of a reference", {RREF}},
    [MESSAGE_CONTEXT_END] = {"the end of a context", {CONTEXT}},
    [MESSAGE_PLACES] = {"a list of places", {TEXT}},
    [MESSAGE_PING] = {"a ping", {NO_FIELD}},
    [MESSAGE_BYE] = {"a goodbye", {CODE}},
    [MESSAGE_GIVEN_UP] = {"a farewell", {NO_FIELD}},
};

enum rule { AT_MOST, ID, OWN_ID }; /* ID: of a worker of this world, or 0; OWN_ID: of the sender */

static const struct {
    size_t at; /* in struct message */
    enum rule rule;
    uint64_t most;
} numbers[] = {
    [CALL] = {offsetof(struct message, call), AT_MOST, UINT64_MAX},
    [TIMEOUT] = {offsetof(struct message, timeout), AT_MOST, 1000000000000000000},
    [CODE] = {offsetof(struct message, code), AT_MOST, ERR_PEER},
    [SELF] = {offsetof(struct message, self), ID, 0},
    [MAKES] = {offsetof(struct message, rref), OWN_ID, 0},
    [RREF] = {offsetof(struct message, rref), ID, 0},
    [WORKER] = {offsetof(struct message, worker), AT_MOST, MOST_WORKERS - 1},
    [CONTEXT] = {offsetof(struct message, context), ID, 0},
    [PASS] = {offsetof(struct message, pass), OWN_ID, 0},
};

int id_worker(uint64_t id) {
    return (int)(id >> ID_BITS);
}

/* ---- writing ---- */

void message_begin(struct wire_out *w, const struct message *m) {
    const struct message_header h = {MESSAGE_MAGIC, WIRE_VERSION, (uint16_t)m->kind, 0};
    wire_put(w, &h, sizeof h);
    for (const uint8_t *f = kinds[m->kind].field; *f; f++)
        switch (*f) {
        case TEXT: wire_put_text(w, m->text ? m->text : ""); break;
        case PATH: wire_put(w, &m->path, (m->path.depth + 1) * sizeof m->path.depth); break;
        case VALUE: break;
        default: wire_put(w, (const char *)m + numbers[*f].at, sizeof(uint64_t));
        }
    w->value_at = w->bytes;
}

struct frame *message_end(struct wire_out *w) {
    struct frame *f = w->failed ? NULL : calloc(1, sizeof *f);
    if (!f) {
        if (!w->failed) w->failed = ERR_MEMORY;
        return NULL;
    }
    *f = (struct frame){.data = w->data, .bytes = w->bytes};
    const uint64_t bytes = w->bytes;
    memcpy(f->data + offsetof(struct message_header, bytes), &bytes, sizeof bytes);
    w->data = NULL;
    w->bytes = w->room = 0;
    return f;
}

struct frame *message_frame(const struct message *m) {
    struct wire_out w = {0};
    message_begin(&w, m);
    struct frame *f = message_end(&w);
    wire_drop(&w);
    return f;
}

void frame_free(struct frame *f) {
    if (!f) return;
    free(f->data);
    free(f);
}

/* ---- reading ---- */

int header_check(const struct message_header *h) {
    if (h->magic != MESSAGE_MAGIC || h->version != WIRE_VERSION)
        return fail(ERR_FAILED, "rpc: message: magic %08x, version %d: not one of ours", h->magic,
                    h->version);
    if (h->kind < MESSAGE_CALL || h->kind >= MESSAGE_KINDS)
        return fail(ERR_FAILED, "rpc: message: kind %d: there are 1 to %d", h->kind,
                    MESSAGE_KINDS - 1);
    if (h->bytes < sizeof *h || h->bytes > MESSAGE_MOST_BYTES)
        return fail(ERR_FAILED, "rpc: message: %llu bytes: at most %llu",
                    (unsigned long long)h->bytes, (unsigned long long)MESSAGE_MOST_BYTES);
    return OK;
}

static int read_number(struct message *m, struct wire_in *in, enum field f) {
    uint64_t x = 0;
    CHECK(wire_get(in, &x, sizeof x));
    memcpy((char *)m + numbers[f].at, &x, sizeof x);
    int good = numbers[f].rule == AT_MOST ? x <= numbers[f].most
               : numbers[f].rule == ID    ? id_worker(x) < in->world
                                          : !x || id_worker(x) == m->from;
    return good ? OK : fail(ERR_FAILED, "rpc: a number in %s makes no sense", kinds[m->kind].name);
}

static int read_path(struct path *p, struct wire_in *in) {
    CHECK(wire_get(in, &p->depth, sizeof p->depth));
    if (p->depth > MOST_PATH) return fail(ERR_FAILED, "rpc: the path of a call makes no sense");
    return wire_get(in, p->step, p->depth * sizeof *p->step);
}

static int read_fields(struct message *m, struct wire_in *in) {
    for (const uint8_t *f = kinds[m->kind].field; *f; f++)
        switch (*f) {
        case TEXT: CHECK(wire_get_text(in, &m->text)); break;
        case PATH: CHECK(read_path(&m->path, in)); break;
        case VALUE: CHECK(in->at < in->bytes ? wire_read(in, &m->value) : OK); break;
        default: CHECK(read_number(m, in, *f));
        }
    int call = m->kind == MESSAGE_CALL;
    if (in->at != in->bytes || (m->kind == MESSAGE_PLACES && m->from) ||
        (call && (m->value.type != DUET_RPC_LIST || strlen(m->text) >= NAME_BYTES ||
                  (m->pass && !m->context))))
        return fail(ERR_FAILED, "rpc: %s makes no sense", kinds[m->kind].name);
    return OK;
}

int message_read(struct message *m, struct frame *f, int from, int self, int world) {
    struct message_header h;
    struct wire_in in = {f->data, f->bytes, sizeof h, from, self, world};
    memcpy(&h, f->data, sizeof h);
    *m = (struct message){.frame = f, .kind = h.kind, .from = from};
    int code = read_fields(m, &in);
    if (code) duet_rpc_value_free(&m->value); /* nothing of it is believed */
    if (!code || m->kind != MESSAGE_ANSWER) return code;
    strncpy(m->why, error_message(), sizeof m->why - 1);
    m->code = (uint64_t)code;
    m->text = m->why;
    return OK;
}

void message_free(struct message *m) {
    if (!m) return;
    duet_rpc_value_free(&m->value);
    frame_free(m->frame);
    free(m);
}
