/* What came over a link is checked: see message.h. */
#include "rpc/message.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t LONGEST_NS = 1000000000000000000;

int id_worker(uint64_t id) {
    return (int)(id >> ID_BITS);
}

static int broken_message(const char *what) {
    return fail(ERR_FAILED, "rpc: %s makes no sense", what);
}

static int is_id(uint64_t id, int world) {
    return id_worker(id) < world;
}

/* What a caller says about its call: the ids that it has made are its own. */
static int check_head(const struct message *m, int world) {
    const struct call_head *h = &m->head;
    uint32_t flags = m->frame->header.flags;
    int remote = (flags & CALL_REMOTE) != 0;
    if (flags & ~(uint32_t)(CALL_REMOTE | CALL_OWN) || m->frame->header.timeout > LONGEST_NS)
        return broken_message("a call");
    if (remote != (h->rref != 0) || remote != (h->fork != 0))
        return broken_message("a remote call");
    if (remote && (id_worker(h->rref) != m->from || id_worker(h->fork) != m->from))
        return broken_message("the reference of a remote call");
    if (!is_id(h->self, world) || !is_id(h->context, world))
        return broken_message("an id of a call");
    if (h->pass && (!h->context || id_worker(h->pass) != m->from))
        return broken_message("a pass of autograd");
    if (h->depth > MOST_PATH || h->count > m->frame->header.bytes) return broken_message("a call");
    return OK;
}

static int read_values(struct message *m, struct wire_in *in, uint32_t count) {
    m->value = calloc((size_t)count + 1, sizeof *m->value);
    if (!m->value) return fail(ERR_MEMORY, "rpc: no host memory for %u values", count);
    for (; m->count < (int)count; m->count++)
        CHECK(wire_read(in, &m->value[m->count]));
    return in->at == in->bytes ? OK : broken_message("what follows the values of a message");
}

static int read_call(struct message *m, struct wire_in *in, int world) {
    CHECK(wire_get(in, &m->head, sizeof m->head));
    CHECK(check_head(m, world));
    CHECK(wire_get_text(in, &m->function));
    if (strlen(m->function) >= NAME_BYTES) return broken_message("the name of a function");
    m->path.depth = m->head.depth;
    CHECK(wire_get(in, m->path.step, m->head.depth * sizeof *m->path.step));
    return read_values(m, in, m->head.count);
}

static int read_answer(struct message *m, struct wire_in *in) {
    int code = m->frame->header.code;
    size_t bytes = in->bytes < sizeof m->text - 1 ? in->bytes : sizeof m->text - 1;
    if (!code) return read_values(m, in, 1);
    m->code = code < ERR_FAILED || code > ERR_PEER ? ERR_FAILED : code;
    if (bytes) memcpy(m->text, in->data, bytes);
    return OK;
}

static int read_life(struct message *m, struct wire_in *in, int world) {
    CHECK(wire_get(in, &m->life, sizeof m->life));
    if (m->life.kind >= LIFE_KINDS || !is_id(m->life.rref, world) || !is_id(m->life.fork, world) ||
        in->at != in->bytes)
        return broken_message("a message on a reference");
    return OK;
}

static void free_values(struct message *m) {
    for (int i = 0; m->value && i < m->count; i++)
        wire_value_free(&m->value[i]);
    free(m->value);
    m->value = NULL;
    m->count = 0;
}

static int read_kind(struct message *m, struct wire_in *in, int world) {
    switch (m->kind) {
    case FRAME_CALL: return read_call(m, in, world);
    case FRAME_ANSWER: return read_answer(m, in);
    case FRAME_LIFE: return read_life(m, in, world);
    case FRAME_CONTEXT_END:
        return is_id(m->frame->header.call, world) ? OK : broken_message("the end of a context");
    case FRAME_PLACES:
        if (m->from || in->bytes != (size_t)world * PLACE_BYTES)
            return broken_message("a list of places");
        for (int r = 0; r < world; r++)
            if (!memchr(in->data + r * PLACE_BYTES, 0, PLACE_BYTES))
                return broken_message("a place");
        return OK;
    default: return OK;
    }
}

int message_read(struct message *m, struct frame *f, int from, int self, int world) {
    struct wire_in in = {f->payload, f->header.bytes, 0, from, self, world};
    *m = (struct message){.frame = f, .kind = f->header.kind, .from = from};
    int code = read_kind(m, &in, world);
    if (code) free_values(m); /* nothing of it is believed */
    if (!code || m->kind != FRAME_ANSWER) return code;
    m->code = code;
    strncpy(m->text, error_message(), sizeof m->text - 1);
    return OK;
}

void message_free(struct message *m) {
    if (!m) return;
    free_values(m);
    frame_free(m->frame);
    free(m);
}
