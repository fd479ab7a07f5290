/* Messages are written, read and checked: see message.h. */
#include "rpc/agent.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELDS_AT = offsetof(struct message, call),
    FIELDS_BYTES = offsetof(struct message, path) + sizeof(struct path) - FIELDS_AT
};

int id_worker(uint64_t id) {
    return (int)(id >> ID_BITS);
}

/* ---- writing ---- */

void message_begin(struct wire_out *w, const struct message *m) {
    const struct message_header h = {MESSAGE_MAGIC, WIRE_VERSION, (uint16_t)m->kind, 0};
    wire_put(w, &h, sizeof h);
    wire_put(w, (const char *)m + FIELDS_AT, FIELDS_BYTES);
    wire_put_text(w, m->text ? m->text : "");
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

/* An id is of a worker of this world; or of the one that has sent it. */
static int fields_are_good(const struct message *m, int world) {
    const uint64_t most = (uint64_t)1 << 60; /* nanoseconds: more than thirty years */
    const int call = m->kind == MESSAGE_CALL, own = !m->rref || id_worker(m->rref) == m->from;
    return m->timeout <= most && m->code <= ERR_PEER && m->worker < MOST_WORKERS &&
           id_worker(m->self) < world && id_worker(m->context) < world &&
           (call ? own : id_worker(m->rref) < world) &&
           (!m->pass || (m->context && m->pass == m->call && id_worker(m->pass) == m->from)) &&
           m->path.depth <= MOST_PATH &&
           (!call || (m->value.type == DUET_RPC_LIST && strlen(m->text) < NAME_BYTES));
}

static int read_fields(struct message *m, struct wire_in *in) {
    CHECK(wire_get(in, (char *)m + FIELDS_AT, FIELDS_BYTES));
    CHECK(wire_get_text(in, &m->text));
    if (in->at < in->bytes) CHECK(wire_read(in, &m->value));
    if (in->at == in->bytes && fields_are_good(m, in->rpc->world)) return OK;
    return fail(ERR_FAILED, "rpc: %s makes no sense",
                m->kind == MESSAGE_CALL ? "a call" : "an answer");
}

int message_read(struct message *m, struct frame *f, duet_rpc *rpc, int from) {
    struct message_header h;
    struct wire_in in = {rpc, f->data, f->bytes, sizeof h, from};
    memcpy(&h, f->data, sizeof h);
    *m = (struct message){.frame = f, .kind = h.kind, .from = from, .rpc = rpc};
    int code = read_fields(m, &in);
    if (code) value_drop(&m->value); /* nothing of it is believed */
    if (!code || m->kind != MESSAGE_ANSWER) return code;
    strncpy(m->why, error_message(), sizeof m->why - 1);
    m->code = (uint64_t)code;
    m->text = m->why;
    return OK;
}

void message_drop(struct message *m) {
    if (!m) return;
    value_drop(&m->value);
    frame_free(m->frame);
    free(m);
}
