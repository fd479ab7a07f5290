/* Frames are made and checked. */
#include "rpc/frame.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct frame *frame_new(enum frame_kind kind, uint64_t bytes) {
    struct frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->header = (struct frame_header){
        .magic = FRAME_MAGIC, .version = FRAME_VERSION, .kind = kind, .bytes = bytes};
    if (bytes && !(f->payload = malloc(bytes))) {
        free(f);
        return NULL;
    }
    return f;
}

void frame_free(struct frame *f) {
    if (!f) return;
    free(f->payload);
    free(f);
}

int frame_check(const struct frame_header *h) {
    if (h->magic != FRAME_MAGIC || h->version != FRAME_VERSION)
        return fail(ERR_FAILED, "rpc: frame: magic %08x, version %d: not one of ours", h->magic,
                    h->version);
    if (h->kind < FRAME_CALL || h->kind >= FRAME_KINDS)
        return fail(ERR_FAILED, "rpc: frame: kind %d: there are 1 to %d", h->kind, FRAME_KINDS - 1);
    if (h->bytes > FRAME_MOST_BYTES)
        return fail(ERR_FAILED, "rpc: frame: %llu bytes: at most %llu",
                    (unsigned long long)h->bytes, (unsigned long long)FRAME_MOST_BYTES);
    return OK;
}

int opening_check(const struct opening *o) {
    if (o->magic != HELLO_MAGIC) return fail(ERR_USAGE, "rpc: a peer is no worker of Duet");
    if (o->version != FRAME_VERSION)
        return fail(ERR_USAGE, "rpc: a peer speaks version %u, this worker %d: build both alike",
                    o->version, FRAME_VERSION);
    return OK;
}

int worker_name_check(const char *name) {
    size_t length = name ? strlen(name) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_:-", name[i])) length = 0;
    if (length && length < HELLO_NAME) return OK;
    return fail(ERR_USAGE,
                "rpc: worker name '%.140s': give 1 to %d letters, digits, '_', ':' or '-'",
                name ? name : "", HELLO_NAME - 1);
}

int hello_check(const struct hello *hello, const struct hello *own) {
    if (!memchr(hello->name, 0, HELLO_NAME) || !memchr(hello->place, 0, PLACE_BYTES))
        return fail(ERR_USAGE, "rpc: the hello of rank %d: a text has no end", hello->rank);
    CHECK(worker_name_check(hello->name));
    if (hello->world != own->world)
        return fail(ERR_USAGE, "rpc: worker '%s' was started for %d workers, '%s' for %d",
                    hello->name, hello->world, own->name, own->world);
    if (hello->rank < 0 || hello->rank >= own->world)
        return fail(ERR_USAGE, "rpc: worker '%s' has rank %d in a world of %d: give 0 to %d",
                    hello->name, hello->rank, own->world, own->world - 1);
    return OK;
}
