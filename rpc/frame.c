/* Frames are made and checked. */
#include "rpc/frame.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

void *payload_alloc(uint64_t bytes) {
    enum { HUGE_PAGE = 2 << 20 };
    if (bytes < 2 * HUGE_PAGE) return malloc(bytes);
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *data = aligned_alloc(HUGE_PAGE, whole);
    if (data) madvise(data, whole, MADV_HUGEPAGE); /* a hint: without it all is as before */
    return data;
}

struct frame *frame_new(enum frame_kind kind, uint64_t bytes) {
    struct frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->header = (struct frame_header){
        .magic = FRAME_MAGIC, .version = FRAME_VERSION, .kind = kind, .bytes = bytes};
    if (bytes && !(f->payload = payload_alloc(bytes))) {
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

int hello_check(const struct hello *hello, const struct hello *own) {
    if (!memchr(hello->name, 0, HELLO_NAME) || !memchr(hello->place, 0, PLACE_BYTES) ||
        hello->rank < 0 || hello->rank >= MOST_WORKERS)
        return fail(ERR_USAGE, "rpc: a peer has rank %d and no proper name", hello->rank);
    if (hello->world != own->world)
        return fail(ERR_USAGE, "rpc: worker '%s' was started for %d workers, '%s' for %d",
                    hello->name, hello->world, own->name, own->world);
    return OK;
}
