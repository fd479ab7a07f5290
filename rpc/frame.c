/* Frames are made and checked. */
#include "rpc/frame.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

/* The large payload that was freed last is kept for the next: most of the time that a large message
 * takes is the kernel's, for fresh pages. Both ends have one, so that what is kept is at most as
 * much as one message took. */
enum { HUGE_PAGE = 2 << 20 };
static struct {
    pthread_mutex_t lock;
    void *data;
    size_t bytes;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A spare one must not be much larger than what it is wanted for. */
static void *take_spare(size_t bytes) {
    pthread_mutex_lock(&spare.lock);
    void *data = spare.bytes >= bytes && spare.bytes / 2 <= bytes ? spare.data : NULL;
    if (data) spare.data = NULL, spare.bytes = 0;
    pthread_mutex_unlock(&spare.lock);
    return data;
}

static size_t whole_pages(uint64_t bytes) {
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *payload_alloc(uint64_t bytes) {
    if (bytes < 2 * HUGE_PAGE) return malloc(bytes);
    void *data = take_spare(whole_pages(bytes));
    if (data) return data;
    data = aligned_alloc(HUGE_PAGE, whole_pages(bytes));
    if (data) madvise(data, whole_pages(bytes), MADV_HUGEPAGE); /* a hint */
    return data;
}

void payload_free(void *data, uint64_t bytes) {
    if (data && bytes >= 2 * HUGE_PAGE) {
        pthread_mutex_lock(&spare.lock);
        void *old = spare.data;
        spare.data = data;
        spare.bytes = whole_pages(bytes);
        pthread_mutex_unlock(&spare.lock);
        data = old;
    }
    free(data);
}

void payload_free_spare(void) {
    pthread_mutex_lock(&spare.lock);
    free(spare.data);
    spare.data = NULL, spare.bytes = 0;
    pthread_mutex_unlock(&spare.lock);
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
    payload_free(f->payload, f->header.bytes);
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
