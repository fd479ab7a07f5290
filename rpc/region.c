/* Regions are made, given, found again and dropped: see region.h. */
#include "rpc/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/descriptor.h"

/* A multiple of all sizes of pages, so that the room behind the head may be read only. */
enum { HEAD_BYTES = 64 << 10 };
static const int64_t KEPT_NS = 5000000000;

enum { FREE, SENT, READ };

struct region_head {
    uint64_t token, id;
    uint32_t state; /* atomic, across processes */
};

static void set_state(struct region *r, uint32_t state) {
    __atomic_store_n(&r->head->state, state, __ATOMIC_RELEASE);
}

static uint32_t state_of(const struct region *r) {
    return __atomic_load_n(&r->head->state, __ATOMIC_ACQUIRE);
}

static void region_unmap(struct region *r) {
    munmap(r->head, HEAD_BYTES + r->bytes);
    if (r->fd >= 0) close(r->fd);
    free(r);
}

void region_release(struct region *r) {
    if (!r) return;
    int of_peer = r->fd < 0; /* an own one may be dropped as soon as nobody holds it */
    if (of_peer) set_state(r, FREE);
    int left = __atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL);
    if (of_peer && !left) region_unmap(r);
}

/* Maps a file; closes it if that fails. NULL: it cannot. */
static struct region *region_map(int fd, size_t bytes, int flags) {
    struct region *r = calloc(1, sizeof *r);
    void *base =
        r ? mmap(NULL, HEAD_BYTES + bytes, PROT_READ | PROT_WRITE, flags, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        free(r);
        close(fd);
        return NULL;
    }
    *r = (struct region){
        .head = base, .data = (uint8_t *)base + HEAD_BYTES, .bytes = bytes, .refs = 1, .fd = fd};
    return r;
}

/* ---- the own ones ---- */

/* All its pages are allocated here: where there is no memory for them, that is an error of this
 * call and no signal later on. */
static struct region *region_new(uint64_t token, uint64_t id, size_t bytes) {
    int fd = above_streams(memfd_create("duet-rpc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) return NULL;
    if (file_allocate(fd, HEAD_BYTES + bytes) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        close(fd);
        return NULL;
    }
    struct region *r = region_map(fd, bytes, MAP_SHARED | MAP_POPULATE);
    if (!r) return NULL;
    r->id = id;
    *r->head = (struct region_head){token, id, FREE};
    return r;
}

void regions_open(struct regions *all) {
    *all = (struct regions){0};
    pthread_mutex_init(&all->lock, NULL);
    if (!getentropy(&all->token, sizeof all->token)) all->door = region_new(all->token, 0, 0);
}

void regions_close(struct regions *all) {
    while (all->first) {
        struct region *r = all->first;
        all->first = r->next;
        region_unmap(r);
    }
    if (all->door) region_unmap(all->door);
    pthread_mutex_destroy(&all->lock);
}

void regions_introduce(const struct regions *all, struct hello *hello) {
    hello->pid = all->door ? (int32_t)getpid() : 0;
    hello->door = all->door ? all->door->fd : 0;
    hello->token = all->token;
}

static int is_free(const struct region *r) {
    return !__atomic_load_n(&r->refs, __ATOMIC_ACQUIRE) && state_of(r) == FREE;
}

static void drop(struct regions *all, struct region **at) {
    struct region *r = *at;
    *at = r->next;
    all->count--;
    region_unmap(r);
}

/* Drops the one that has been free for longest. 0: none is free. */
static int drop_oldest(struct regions *all) {
    struct region **oldest = NULL;
    for (struct region **at = &all->first; *at; at = &(*at)->next)
        if (is_free(*at) && (!oldest || (*at)->used < (*oldest)->used)) oldest = at;
    if (oldest) drop(all, oldest);
    return oldest != NULL;
}

/* Its pages take their time, so they are made without the lock. It is counted before. */
static struct region *take_new(struct regions *all, size_t bytes) {
    pthread_mutex_lock(&all->lock);
    int place = all->count < MOST_REGIONS || drop_oldest(all);
    all->count += place;
    uint64_t id = ++all->ids;
    pthread_mutex_unlock(&all->lock);
    struct region *r = place ? region_new(all->token, id, bytes) : NULL;
    pthread_mutex_lock(&all->lock);
    if (r) {
        r->used = now_ns();
        r->next = all->first;
        all->first = r;
    } else {
        all->count -= place;
    }
    pthread_mutex_unlock(&all->lock);
    return r;
}

struct region *region_take(struct regions *all, uint64_t bytes) {
    size_t room = (bytes + HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES;
    pthread_mutex_lock(&all->lock);
    struct region *r = all->first; /* none much larger than what it is wanted for */
    while (r && !(r->bytes >= room && r->bytes / 2 <= room && is_free(r)))
        r = r->next;
    if (r) r->refs = 1, r->used = now_ns();
    pthread_mutex_unlock(&all->lock);
    return r ? r : take_new(all, room);
}

void region_give(struct regions *all, struct region *r, const void *reader,
                 struct frame_header *header) {
    pthread_mutex_lock(&all->lock);
    header->region = r->id;
    header->fd = r->fd;
    r->reader = reader;
    set_state(r, SENT);
    pthread_mutex_unlock(&all->lock);
    region_release(r);
}

void regions_back(struct regions *all, uint64_t id, const void *reader) {
    pthread_mutex_lock(&all->lock);
    for (struct region *r = all->first; r; r = r->next)
        if (r->id == id && r->reader == reader && state_of(r) == SENT) set_state(r, FREE);
    pthread_mutex_unlock(&all->lock);
}

int regions_under_way(struct regions *all) {
    int any = 0;
    pthread_mutex_lock(&all->lock);
    for (const struct region *r = all->first; r; r = r->next)
        any |= state_of(r) == SENT;
    pthread_mutex_unlock(&all->lock);
    return any;
}

/* Who is gone may still run, and read: what it has taken is not used again. */
void regions_of_gone(struct regions *all, const void *reader) {
    pthread_mutex_lock(&all->lock);
    for (struct region **at = &all->first; *at;)
        if ((*at)->reader == reader && !__atomic_load_n(&(*at)->refs, __ATOMIC_ACQUIRE))
            drop(all, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&all->lock);
}

/* Whether it is time to look; `last` is when that was done last. */
static int is_time(int64_t *last, int64_t now) {
    int64_t before = __atomic_load_n(last, __ATOMIC_RELAXED);
    if (now - before < KEPT_NS / 4) return 0;
    __atomic_store_n(last, now, __ATOMIC_RELAXED);
    return 1;
}

void regions_trim(struct regions *all, int64_t now) {
    if (!is_time(&all->trimmed, now)) return;
    pthread_mutex_lock(&all->lock);
    for (struct region **at = &all->first; *at;)
        if (now - (*at)->used > KEPT_NS && is_free(*at))
            drop(all, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&all->lock);
}

/* ---- those of a peer ---- */

/* A file that is sealed and has room for a head; its descriptor, or -1 with errno. */
static int open_sealed(const struct guests *all, int number, size_t *bytes) {
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", all->pid, number);
    if (stat(path, &file)) return -1;
    int fd = S_ISREG(file.st_mode) ? above_streams(open(path, O_RDWR | O_CLOEXEC)) : -1;
    if (fd < 0) return -1;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &file) && file.st_size >= HEAD_BYTES) {
        *bytes = (size_t)file.st_size - HEAD_BYTES;
        return fd;
    }
    close(fd);
    return -1;
}

/* NULL, with errno. A descriptor may by now be another file's: then that is not opened, or its head
 * is not this one. */
static struct region *guest_open(const struct guests *all, int number, uint64_t id) {
    size_t bytes = 0;
    errno = EINVAL;
    int fd = all->pid ? open_sealed(all, number, &bytes) : -1;
    struct region *r = fd < 0 ? NULL : region_map(fd, bytes, MAP_SHARED);
    if (!r) return NULL;
    close(fd);
    r->fd = -1;
    r->id = id;
    if (r->head->token == all->token && r->head->id == id &&
        (!r->bytes || !mprotect(r->data, r->bytes, PROT_READ)))
        return r;
    region_unmap(r);
    errno = EINVAL;
    return NULL;
}

int guests_open(struct guests *all, const struct hello *peer) {
    *all = (struct guests){.pid = peer->pid, .token = peer->token};
    struct region *door = guest_open(all, peer->door, 0);
    if (door)
        region_unmap(door);
    else
        all->pid = 0;
    return door != NULL;
}

int guests_find(struct region **out, struct guests *all, const struct frame_header *h,
                int64_t now) {
    struct region *r = all->first;
    *out = NULL;
    while (r && r->id != h->region)
        r = r->next;
    if (!r) {
        if (!(r = guest_open(all, h->fd, h->region)))
            return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? 0 : -1;
        r->next = all->first;
        all->first = r;
    }
    if (h->beside > r->bytes) return -1;
    r->used = now;
    set_state(r, READ);
    __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
    *out = r;
    return 0;
}

/* Releases those that nobody has used since `before`. What frames still have stays mapped until
 * they are freed. */
static void release_unused(struct guests *all, int64_t before) {
    for (struct region **at = &all->first; *at;) {
        struct region *r = *at;
        if (r->used >= before) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (!__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL)) region_unmap(r);
    }
}

void guests_close(struct guests *all) {
    release_unused(all, INT64_MAX);
}

void guests_trim(struct guests *all, int64_t now) {
    if (is_time(&all->trimmed, now)) release_unused(all, now - KEPT_NS);
}
