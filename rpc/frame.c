/* Frames are made and checked. */
#include "rpc/frame.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "rpc/region.h"

enum { HUGE_PAGE = 2 << 20 };

void spare_open(struct payload_spare *s) {
    *s = (struct payload_spare){0};
    pthread_mutex_init(&s->lock, NULL);
}

void spare_close(struct payload_spare *s) {
    free(s->data);
    pthread_mutex_destroy(&s->lock);
}

/* It must not be much larger than what it is wanted for. */
static void *take_spare(struct payload_spare *s, size_t bytes) {
    if (!s) return NULL;
    pthread_mutex_lock(&s->lock);
    void *data = s->bytes >= bytes && s->bytes / 2 <= bytes ? s->data : NULL;
    if (data) s->data = NULL, s->bytes = 0;
    pthread_mutex_unlock(&s->lock);
    return data;
}

static size_t whole_pages(uint64_t bytes) {
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *payload_alloc(struct payload_spare *s, uint64_t bytes) {
    if (bytes < 2 * HUGE_PAGE) return malloc(bytes);
    void *data = take_spare(s, whole_pages(bytes));
    if (data) return data;
    data = aligned_alloc(HUGE_PAGE, whole_pages(bytes));
    if (data) madvise(data, whole_pages(bytes), MADV_HUGEPAGE); /* a hint */
    return data;
}

static void payload_free(struct payload_spare *s, void *data, uint64_t bytes) {
    if (s && data && bytes >= 2 * HUGE_PAGE) {
        pthread_mutex_lock(&s->lock);
        void *old = s->data;
        s->data = data;
        s->bytes = whole_pages(bytes);
        pthread_mutex_unlock(&s->lock);
        data = old;
    }
    free(data);
}

struct frame *frame_new_of(struct payload_spare *spare, enum frame_kind kind, uint64_t bytes) {
    struct frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->spare = spare;
    f->header = (struct frame_header){
        .magic = FRAME_MAGIC, .version = FRAME_VERSION, .kind = kind, .bytes = bytes};
    if (bytes && !(f->payload = payload_alloc(spare, bytes))) {
        free(f);
        return NULL;
    }
    return f;
}

struct frame *frame_new(enum frame_kind kind, uint64_t bytes) {
    return frame_new_of(NULL, kind, bytes);
}

void frame_free(struct frame *f) {
    if (!f) return;
    payload_free(f->spare, f->payload, f->header.bytes);
    region_release(f->beside);
    free(f);
}

int frame_check(const struct frame_header *h) {
    if (h->magic != FRAME_MAGIC || h->version != FRAME_VERSION)
        return fail(ERR_FAILED, "rpc: frame: magic %08x, version %d: not one of ours", h->magic,
                    h->version);
    if (h->kind < FRAME_CALL || h->kind >= FRAME_KINDS)
        return fail(ERR_FAILED, "rpc: frame: kind %d: there are 1 to %d", h->kind, FRAME_KINDS - 1);
    const uint64_t bytes = h->bytes > h->beside ? h->bytes : h->beside;
    if (bytes > FRAME_MOST_BYTES)
        return fail(ERR_FAILED, "rpc: frame: %llu bytes: at most %llu", (unsigned long long)bytes,
                    (unsigned long long)FRAME_MOST_BYTES);
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
