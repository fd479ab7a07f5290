/* Writes, reads and checks messages: see message.h. */
#include "rpc/agent.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELDS_AT = offsetof(struct message, call),
    FIELDS_BYTES = offsetof(struct message, path) + sizeof(struct path) - FIELDS_AT
};

/* ---- writing ---- */

void message_begin(struct wire_out *w, const struct message *m) {
    const struct message_header h = {.kind = m->kind};
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
    ((struct message_header *)f->data)->bytes = w->bytes;
    w->data = NULL;
    w->bytes = w->room = 0;
    return f;
}

/* ---- reading ---- */

int header_is_good(const struct message_header *h) {
    return h->kind >= MESSAGE_CALL && h->kind < MESSAGE_KINDS && h->bytes >= sizeof *h &&
           h->bytes <= MESSAGE_MOST_BYTES;
}

/* An id must belong to a worker of this world, or to the sender. */
static int fields_are_good(const struct message *m, int world) {
    return m->code <= ERR_PEER && m->worker < MOST_WORKERS && id_worker(m->self) < world &&
           id_worker(m->context) < world && id_worker(m->rref) < world &&
           (!m->leaves || id_worker(m->call) == m->from) && m->path.depth <= MOST_PATH &&
           (m->kind != MESSAGE_CALL ||
            (m->value.type == DUET_RPC_LIST && strlen(m->text) < NAME_BYTES));
}

static int read_fields(struct message *m, struct wire_in *in) {
    CHECK(wire_get(in, (char *)m + FIELDS_AT, FIELDS_BYTES));
    CHECK(wire_get_text(in, &m->text));
    if (in->at < in->bytes) CHECK(wire_read(in, &m->value));
    if (in->at == in->bytes && fields_are_good(m, in->rpc->world)) return OK;
    return fail(ERR_FAILED, "rpc: %s is malformed",
                m->kind == MESSAGE_CALL ? "a call" : "an answer");
}

int message_read(struct message *m, struct frame *f, duet_rpc *rpc, int from) {
    struct message_header h;
    struct wire_in in = {rpc, f->data, f->bytes, sizeof h};
    memcpy(&h, f->data, sizeof h);
    *m = (struct message){.frame = f, .kind = (enum message_kind)h.kind, .from = from, .rpc = rpc};
    int code = read_fields(m, &in);
    if (code) value_drop(&m->value); /* do not trust any part of it */
    if (!code || m->kind != MESSAGE_ANSWER) return code;
    strncpy(m->why, error_message(), sizeof m->why - 1);
    m->code = (uint64_t)code;
    m->text = m->why;
    return OK;
}
